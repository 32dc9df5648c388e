"""What is tried again, what is not, and what an error says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.errors import (
    ConfigError,
    DataLostError,
    FencedInstanceIdError,
    LoadFailedError,
    NetworkError,
)
from millstream.spark.load import failing
from millstream.spark.load.failing import TRIES_CONTINUOUS, TRIES_ONCE, Patience
from millstream.spark.load.jobs import TaskFailedError
from millstream.spark.load.report import CycleReport, Tally
from millstream.spark.load.stopping import Stop
from millstream.spark.ranges import OffsetRange
from millstream.spark.sinks.base import ProgressConflictError, SchemaConflictError, SinkError

PART = OffsetRange("orders", 3, 10, 20)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Patience:
    monkeypatch.setattr(failing, "_BACKOFF_SECONDS", 0)
    monkeypatch.setattr(failing, "_CONFLICT_SECONDS", 0)
    return Patience(Tally("g", "delta:x", loaded=1234), Stop())


def raising(error: Exception) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


def attempts(patience: Patience, error: Exception) -> int:
    """How often it may fail before the load does."""
    for number in range(1, 100):
        try:
            assert patience.attempt(raising(error), [PART]) is None
        except LoadFailedError:
            return number
    raise AssertionError("it is patient for ever")


def test_what_works_is_returned(patience: Patience) -> None:
    assert patience.attempt(lambda: 7) == 7


@pytest.mark.parametrize(
    "error", [ConfigError("x"), SchemaConflictError("x"), DataLostError("x"), LoadFailedError("x")]
)
def test_what_another_try_would_not_change_is_raised_as_it_is(patience: Patience, error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        patience.attempt(raising(error))
    assert raised.value is error


def test_what_may_pass_is_tried_again(patience: Patience) -> None:
    assert attempts(patience, SinkError("busy")) == TRIES_ONCE
    patience.renew()
    patience.tries = TRIES_CONTINUOUS
    assert attempts(patience, NetworkError()) == TRIES_CONTINUOUS


@pytest.mark.parametrize("error", [ValueError("a defect"), FencedInstanceIdError()])
def test_what_cannot_pass_is_not(patience: Patience, error: Exception) -> None:
    patience.tries = TRIES_CONTINUOUS
    assert attempts(patience, error) == 1


def test_a_success_renews_it(patience: Patience) -> None:
    patience.attempt(raising(SinkError("busy")))
    patience.renew()
    assert attempts(patience, SinkError("busy")) == TRIES_ONCE


def test_a_load_that_runs_on_waits_longer_and_longer_for_about_five_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    stop = Stop()
    monkeypatch.setattr(stop, "wait", waits.append)
    patience = Patience(Tally("g", "delta:x"), stop)
    patience.tries = TRIES_CONTINUOUS
    assert attempts(patience, NetworkError()) == TRIES_CONTINUOUS
    assert waits == sorted(waits) and waits[:3] == [0.5, 1, 2] and waits[-1] == 30
    assert 290 < sum(waits) < 310


def test_conflicts_are_expected_for_a_while(patience: Patience) -> None:
    assert attempts(patience, ProgressConflictError("moved")) == 10


def test_the_error_says_where_what_and_that_it_is_safe(patience: Patience) -> None:
    patience.tries = 1
    with pytest.raises(LoadFailedError) as raised:
        patience.attempt(raising(SinkError("the disk is full.")), [PART])
    assert str(raised.value) == (
        "loading orders-3 [10, 20) into delta:x failed: the disk is full. This run had committed 1,234 rows "
        "before, and nothing of what failed: running it again is safe and continues there"
    )
    assert raised.value.ranges == (("orders", 3, 10, 20),)
    assert (raised.value.sink, raised.value.committed) == ("delta:x", 1234)


def test_a_task_names_its_own_range(patience: Patience) -> None:
    patience.tries = 1
    small = OffsetRange("orders", 3, 12, 14)
    with pytest.raises(LoadFailedError) as raised:
        patience.attempt(raising(TaskFailedError.of(small, ValueError("bad"))), [PART])
    assert raised.value.ranges == (("orders", 3, 12, 14),)


def test_what_fails_after_the_commit_does_not_hide_it() -> None:
    """The group could not be told: the rows are there all the same."""
    tally = Tally("g", "delta:x")
    patience = Patience(tally, Stop())

    def step() -> None:
        tally.add(CycleReport("c", (PART,), 10, 10, 0, 1, 1, 0.1))
        raise FencedInstanceIdError

    with pytest.raises(LoadFailedError) as raised:
        patience.attempt(step, [PART])
    assert "By then these ranges were committed; 10 rows of this run are there: running" in str(raised.value)
    assert "nothing of what failed" not in str(raised.value)
