"""What is tried again, what is not, and what an error says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.errors import (
    ConfigError,
    CoordinatorNotAvailableError,
    DataLostError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    LoadFailedError,
    MillstreamTimeoutError,
    MissingExtraError,
    NetworkError,
    NoBrokersAvailableError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from millstream.spark.load.engine.retries import (
    TRIES_CONTINUOUS,
    TRIES_ONCE,
    FailureKind,
    RetryBudget,
    failure_kind,
)
from millstream.spark.load.engine.stopping import StopRequest
from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.report import LoadReport, Tally
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import (
    ProgressConflictError,
    SchemaConflictError,
    SinkError,
    SinkRefusedError,
    SinkUnavailableError,
)

PART = OffsetRange("orders", 3, 10, 20)


class Timeline(StopRequest):
    """A stop whose waits take no time but that of its clock."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        super().__init__()
        self.now = 1000.0
        self.waits: list[float] = []
        self.step_seconds = step_seconds
        """How long each step takes before it fails."""

    def wait(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        self.now += timeout_s + self.step_seconds
        return False

    def clock(self) -> float:
        return self.now


@pytest.fixture
def timeline() -> Timeline:
    return Timeline()


@pytest.fixture
def retries(timeline: Timeline) -> RetryBudget:
    return RetryBudget(Tally(LoadReport("g", "delta:x", loaded=1234)), timeline, clock=timeline.clock)


def raising(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def caused(error: Exception, *, by: Exception) -> Exception:
    error.__cause__ = by
    return error


def attempts(retries: RetryBudget, error: Exception) -> int:
    """How often it may fail before the load does."""
    for number in range(1, 100):
        try:
            assert retries.attempt(raising(error), [PART]) is None
        except LoadFailedError:
            return number
    raise AssertionError("it is patient for ever")


def test_what_works_is_returned(retries: RetryBudget) -> None:
    assert retries.attempt(lambda: 7) == 7


@pytest.mark.parametrize(
    "error", [ConfigError("x"), SchemaConflictError("x"), DataLostError("x"), LoadFailedError("x")]
)
def test_what_another_try_would_not_change_is_raised_as_it_is(retries: RetryBudget, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        retries.attempt(raising(error))
    assert raised.value is error


def test_of_ranges_that_were_being_loaded_it_says_more(retries: RetryBudget, timeline: Timeline) -> None:
    with pytest.raises(
        LoadFailedError, match=r"orders-3 \[10, 20\) into delta:x failed: no column"
    ) as raised:
        retries.attempt(raising(SchemaConflictError("no column")), [PART])
    assert "1,234 rows" in str(raised.value) and "running it again is safe" in str(raised.value)
    assert timeline.waits == []


TRANSIENT = [
    NetworkError(),
    CoordinatorNotAvailableError(),
    NoBrokersAvailableError(),
    SinkUnavailableError("the database system is shutting down"),
    TaskFailedError.of(PART, MillstreamTimeoutError("nothing came")),
    TaskFailedError.of(PART, SinkUnavailableError("no connection")),
    caused(SinkError("the progress cannot be read"), by=NetworkError()),
]
UNKNOWN = [
    SinkError("the disk is full"),
    UnknownTopicOrPartitionError(),
    UnknownServerError(),
    caused(SinkError("the Delta table cannot be read"), by=OSError("input/output error")),
    TaskFailedError("Spark's workers died: ExecutorLostFailure"),
    TaskFailedError.of(PART, SinkError("the disk is full")),
    TaskFailedError.of(PART, ValueError("another worker may do better")),
]
PERMANENT = [
    ValueError("a defect"),
    FencedInstanceIdError(),
    SaslAuthenticationFailedError(),
    TopicAuthorizationFailedError(),
    GroupAuthorizationFailedError(),
    UnsupportedVersionError(),
    SinkRefusedError("permission denied for table orders"),
    caused(SinkError("the Delta table cannot be written"), by=PermissionError("permission denied")),
    TaskFailedError.of(PART, SinkRefusedError("permission denied for table orders")),
    TaskFailedError.of(PART, PermissionError("permission denied")),
    TaskFailedError.of(PART, TopicAuthorizationFailedError()),
    TaskFailedError.of(PART, SchemaConflictError("no column")),
    TaskFailedError.of(PART, MissingExtraError("psycopg", "postgres")),
]


def named(error: object) -> str:
    return getattr(error, "kind", "") or type(error).__name__


@pytest.mark.parametrize("error", TRANSIENT, ids=named)
def test_what_passes_is_tried_for_a_minute_at_growing_intervals(
    error: Exception, retries: RetryBudget, timeline: Timeline
) -> None:
    assert failure_kind(error) is FailureKind.TRANSIENT
    assert attempts(retries, error) == len(timeline.waits) + 1
    assert timeline.waits[:5] == [0.5, 1, 2, 4, 8] and max(timeline.waits) == 10
    assert sum(timeline.waits) == 60, "the last try is when the time is over"


@pytest.mark.parametrize("error", UNKNOWN, ids=named)
def test_what_may_pass_is_tried_once_more(error: Exception, retries: RetryBudget) -> None:
    assert failure_kind(error) is FailureKind.UNKNOWN
    assert attempts(retries, error) == TRIES_ONCE
    retries.renew()
    retries.run_continuously()
    assert attempts(retries, error) == TRIES_CONTINUOUS


@pytest.mark.parametrize("error", PERMANENT, ids=named)
def test_what_lasts_is_not_tried_again(error: Exception, retries: RetryBudget, timeline: Timeline) -> None:
    assert failure_kind(error) is FailureKind.PERMANENT
    retries.run_continuously()
    assert attempts(retries, error) == 1 and timeline.waits == []


def test_how_long_is_a_setting(timeline: Timeline) -> None:
    retries = RetryBudget(Tally(LoadReport("g", "delta:x")), timeline, 3.0, timeline.clock)
    assert attempts(retries, NetworkError()) == 4
    assert timeline.waits == [0.5, 1, 1.5]


def test_however_long_a_try_takes_there_is_a_second_one(retries: RetryBudget, timeline: Timeline) -> None:
    timeline.step_seconds = 600
    assert attempts(retries, NetworkError()) == 2


def test_what_failed_otherwise_before_takes_no_time_from_what_passes(
    retries: RetryBudget, timeline: Timeline
) -> None:
    timeline.step_seconds = 600
    assert retries.attempt(raising(SinkError("odd"))) is None
    assert retries.attempt(raising(NetworkError())) is None


def test_what_fails_in_other_ways_meanwhile_counts_by_itself(retries: RetryBudget) -> None:
    """A server that restarts refuses connections first, and may then have lost what was staged."""
    away = raising(SinkUnavailableError("no connection"))
    for _ in range(3):
        assert retries.attempt(away) is None
    assert retries.attempt(raising(SinkError("odd"))) is None
    assert retries.attempt(away) is None
    with pytest.raises(LoadFailedError, match=r"odd \(tried 6 times in 16 s\)"):
        retries.attempt(raising(SinkError("odd")))


def test_a_success_renews_it(retries: RetryBudget, timeline: Timeline) -> None:
    retries.attempt(raising(SinkError("busy")))
    retries.attempt(raising(NetworkError()))
    retries.renew()
    timeline.waits.clear()
    timeline.now += 1000
    assert attempts(retries, SinkError("busy")) == TRIES_ONCE
    retries.renew()
    timeline.waits.clear()
    attempts(retries, NetworkError())
    assert sum(timeline.waits) == 60


def test_a_load_that_runs_on_waits_longer_and_longer_for_five_minutes(
    retries: RetryBudget, timeline: Timeline
) -> None:
    retries.run_continuously()
    attempts(retries, NetworkError())
    waits = timeline.waits
    assert waits[:3] == [0.5, 1, 2] and max(waits) == 30
    assert sum(waits) == 300


def test_conflicts_are_expected_for_a_while(retries: RetryBudget) -> None:
    assert attempts(retries, ProgressConflictError("moved")) == 10


def test_the_error_says_where_what_and_that_it_is_safe(retries: RetryBudget) -> None:
    with pytest.raises(LoadFailedError) as raised:
        retries.attempt(raising(SinkRefusedError("permission denied.")), [PART])
    assert str(raised.value) == (
        "loading orders-3 [10, 20) into delta:x failed: permission denied. This run had committed 1,234 rows "
        "before, and nothing of what failed: running it again is safe and continues there"
    )
    assert raised.value.ranges == (("orders", 3, 10, 20),)
    assert (raised.value.sink, raised.value.committed) == ("delta:x", 1234)


def test_a_task_names_its_own_range(retries: RetryBudget) -> None:
    small = OffsetRange("orders", 3, 12, 14)
    with pytest.raises(LoadFailedError) as raised:
        retries.attempt(raising(TaskFailedError.of(small, SinkRefusedError("no"))), [PART])
    assert raised.value.ranges == (("orders", 3, 12, 14),)


def test_what_fails_after_the_commit_does_not_hide_it() -> None:
    """The group could not be told: the rows are there all the same."""
    tally = Tally(LoadReport("g", "delta:x"))
    retries = RetryBudget(tally, StopRequest())

    def step() -> None:
        tally.add(LoadReport("g", "delta:x", 10, 0, 10, (PART,), 1, 1, cycles=1))
        raise FencedInstanceIdError

    with pytest.raises(LoadFailedError) as raised:
        retries.attempt(step, [PART])
    assert "By then these ranges were committed; 10 rows of this run are there: running" in str(raised.value)
    assert "nothing of what failed" not in str(raised.value)
