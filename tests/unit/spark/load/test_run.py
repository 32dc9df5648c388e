"""A run, with all that it works with in memory: in which order things happen, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.errors import CommitFailedError, LoadFailedError, NetworkError
from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.decisions.starts import Rules
from millstream.spark.load.engine import retries as failing
from millstream.spark.load.engine.context import RunContext
from millstream.spark.load.engine.planning import Planner
from millstream.spark.load.engine.run import LoadRun
from millstream.spark.load.engine.stopping import StoppedError, StopRequest
from millstream.spark.load.engine.topics import LoadedTopics
from millstream.spark.load.pipeline.fused import PieceResult
from millstream.spark.load.points import Detail, Point
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import Cycle, SinkError, Standing, Written
from tests.unit.spark.load.world import ID, OTHER_ID, Clock, FakeBrokers, FakeSink, as_sink

ZERO = TopicPartition("orders", 0)


class WorkingSink(FakeSink):
    """A sink that remembers how far it is and what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: list[tuple[int, int]] = []
        self.abandoned: list[str] = []
        self.given_up: list[Written] = []
        self.broken_compaction: Exception | None = None

    def writer(self, cycle_id: str) -> None:
        return None

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        for advance in cycle.advances:
            progress = advance.after(advance.expected.rows)
            self.progress[TopicPartition(advance.topic, advance.partition)] = Standing(progress, progress)
            if advance.end > advance.start:
                self.committed.append((advance.start, advance.end))

    def abandon(self, cycle_id: str, written: Iterable[Written]) -> None:
        self.abandoned.append(cycle_id)
        self.given_up += written

    def compact(self, target_bytes: int, at: Callable[[str], None]) -> int:
        if self.broken_compaction is not None:
            raise self.broken_compaction
        return 0


class FakeMember:
    """The only member of its group, which nobody disturbs."""

    owned_count = 1
    is_aborted = False

    def __init__(self, brokers: FakeBrokers, stop: StopRequest) -> None:
        self._brokers = brokers
        self._stop = stop
        self.waits = 0
        self.losses = 0
        self.held = False
        self.before_hold: Callable[[], None] = lambda: None

    def owned(self) -> frozenset[TopicPartition]:
        return frozenset([ZERO])

    def wait_assigned(self, timeout_s: float) -> bool:
        return True

    def wait_change(self, timeout_s: float) -> None:
        self.waits += 1
        if self.waits > 3:
            self._stop.request()

    def hold(self, partitions: frozenset[TopicPartition], interrupt: Callable[[], None]) -> bool:
        self.before_hold()
        self.held = True
        return True

    def seal(self) -> bool:
        return True

    def release(self) -> None:
        self.held = False

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, losses: int) -> None:
        if losses != self.losses:
            raise CommitFailedError("it was no member for a while")
        self._brokers.group.update(offsets)


class FakePipeline:
    """Tasks that read nothing."""

    aggregates = False

    def __init__(self) -> None:
        self.runs = 0
        self.pieces: list[int] = []
        self.described: list[dict[str, str | None]] = []

    def interrupt(self, spark: Any, tag: str) -> None:
        """There is nothing to interrupt."""

    def run(
        self, spark: Any, settings: Mapping[str, object], pieces: Sequence[OffsetRange], writer: Any, tag: str
    ) -> list[PieceResult]:
        self.runs += 1
        self.pieces.append(len(pieces))
        self.described.append(dict(spark.sparkContext.properties))
        rows = [piece.offsets for piece in pieces]
        return [PieceResult(index, Written(n, 0, n, 1, b""), n) for index, n in enumerate(rows)]


class FakeSpark:
    """Spark's context on one machine."""

    def __init__(self) -> None:
        self.master = "local[2]"
        self.defaultParallelism = 2
        self.conf: dict[str, str] = {}
        self.properties: dict[str, str | None] = {}

    def getConf(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return self.conf

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        self.properties[name] = value


class Stage:
    """A run and all around it."""

    def __init__(self, end: int = 10) -> None:
        self.brokers = FakeBrokers({"orders": (ID, [(0, end)])})
        self.sink = WorkingSink()
        self.pipeline = FakePipeline()
        self.stop = StopRequest()
        self.member = FakeMember(self.brokers, self.stop)
        self.at: dict[Point, Callable[[], None]] = {}
        self.compact_bytes: int | None = None
        self.on_recreated = "fail"
        self.retry_seconds = failing.SECONDS_ONCE
        self.spark = FakeSpark()

    def observe(self, point: Point, detail: Detail) -> None:
        self.at.get(point, lambda: None)()

    def run(self) -> LoadRun:
        clock = Clock()
        rules = Rules("g", self.sink.name, on_recreated=self.on_recreated)
        topics = LoadedTopics(self.brokers, ["orders"], clock=clock, sleep=clock.sleep)
        context = RunContext(
            group_id="g",
            sink=as_sink(self.sink),
            pipeline=cast("Any", self.pipeline),
            task_settings={},
            bounds=Bounds(),
            observer=self.observe,
            compact_bytes=self.compact_bytes,
            retry_seconds=self.retry_seconds,
        )
        spark = SimpleNamespace(sparkContext=self.spark)
        planner = Planner(rules, topics, as_sink(self.sink))
        return LoadRun(context, lambda: spark, cast("Any", self.member), planner, self.stop)

    def make_anew(self, end: int) -> None:
        self.brokers.topics = {"orders": (OTHER_ID, [(0, end)])}


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(failing, "_BACKOFF_SECONDS", 0)
    return Stage()


def test_all_up_to_the_end(stage: Stage) -> None:
    report = stage.run().once()
    assert (report.loaded, report.cycles, report.stopped) == (10, 1, False)
    assert stage.sink.committed == [(0, 10)] and stage.brokers.group[ZERO].offset == 10


def test_what_is_committed_is_not_abandoned_whatever_fails_then(stage: Stage) -> None:
    """Others may have compacted it by now: its files are still named by the table's history."""

    def fail() -> None:
        raise RuntimeError("an observer of the user's")

    stage.at[Point.SINK_COMMITTED] = fail
    with pytest.raises(LoadFailedError, match="By then these ranges were committed"):
        stage.run().once()
    assert stage.sink.committed == [(0, 10)] and stage.sink.given_up == []


def test_a_rewind_while_it_was_no_member_is_followed(stage: Stage) -> None:
    """Suspended between the two commits it is missed, the group is reset, and it comes back."""

    def missed() -> None:
        if stage.member.losses == 0:
            stage.member.losses = 1
            stage.brokers.group[ZERO] = OffsetAndMetadata(4, RESET_METADATA)

    stage.at[Point.SINK_COMMITTED] = missed
    stage.run().once()
    assert stage.sink.committed == [(0, 10), (4, 10)] and stage.brokers.group[ZERO].offset == 10


def test_a_topic_made_anew_while_tasks_run_is_not_committed(stage: Stage) -> None:
    stage.at[Point.TASKS_DONE] = lambda: stage.make_anew(10)
    with pytest.raises(LoadFailedError, match="recreated"):
        stage.run().once()
    assert stage.sink.committed == [] and len(stage.sink.abandoned) == 1
    assert not stage.member.held


def test_a_topic_made_anew_may_be_shorter_than_what_was_to_be_loaded(stage: Stage) -> None:
    stage.on_recreated = "append"
    stage.at[Point.TASKS_DONE] = lambda: stage.make_anew(4)
    report = stage.run().once()
    assert not report.stopped, "it waited for records that will never be there"
    assert stage.sink.committed == [(0, 4)]


def test_a_stop_just_before_a_cycle_is_heard(stage: Stage) -> None:
    """There was nothing to break off yet when it was asked for."""
    stage.member.before_hold = stage.stop.request
    report = stage.run().once()
    assert report.stopped and report.cycles == 0
    assert stage.pipeline.runs == 0 and not stage.member.held


def test_a_stop_while_brokers_are_asked_breaks_the_cycle_off(stage: Stage) -> None:
    """They may be away, and the question would wait for them."""

    def stopped() -> None:
        raise StoppedError

    stage.at[Point.TASKS_DONE] = stopped
    stage.at[Point.TASKS_STARTED] = stage.stop.request
    report = stage.run().once()
    assert report.stopped and report.cycles == 0
    assert stage.sink.committed == [] and len(stage.sink.abandoned) == 1 and not stage.member.held


def test_files_that_could_not_be_joined_end_nothing(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.compact_bytes = 1 << 20
    stage.sink.broken_compaction = SinkError("the disk is full")
    report = stage.run().once()
    assert report.loaded == 10
    assert report.notes == ("small files were not joined: the disk is full",)
    assert "small files were not joined" in caplog.text


def test_failures_that_idle_times_lie_between_do_not_add_up(stage: Stage) -> None:
    """Planning fails now and then, and there is nothing to load for days."""
    stage.sink.stand("orders", 0, 10)
    stage.run().once()
    plans = 0

    def flaky() -> None:
        nonlocal plans
        plans += 1
        if plans > 3 * failing.TRIES_CONTINUOUS:
            stage.stop.request()
        elif plans % 2:
            raise NetworkError

    stage.at[Point.PLANNING] = flaky
    assert stage.run().forever(every=0).stopped
    assert plans > 3 * failing.TRIES_CONTINUOUS


def test_executors_that_come_late_are_used(stage: Stage) -> None:
    """Spark counts two cores before any executor is there; the cycle after they came uses them."""
    stage.brokers = FakeBrokers({"orders": (ID, [(0, 20_000_000)])})
    stage.member = FakeMember(stage.brokers, stage.stop)

    def come() -> None:
        stage.spark.defaultParallelism = 8

    stage.at[Point.TASKS_DONE] = come
    stage.run().once()
    assert stage.sink.committed == [(0, 10_000_000), (10_000_000, 20_000_000)]
    assert stage.pipeline.pieces == [4, 8]


def test_dynamic_allocation_gets_tasks_for_the_executors_that_may_come(stage: Stage) -> None:
    """It adds executors only for tasks that wait."""
    stage.brokers = FakeBrokers({"orders": (ID, [(0, 1_000_000)])})
    stage.member = FakeMember(stage.brokers, stage.stop)
    stage.spark.conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "5",
        "spark.executor.cores": "2",
    }
    stage.run().once()
    assert stage.pipeline.pieces == [10]


def test_jobs_are_named_in_sparks_ui(stage: Stage) -> None:
    stage.spark.properties["spark.job.description"] = "mine"
    stage.run().once()
    (shown,) = stage.pipeline.described
    assert shown["spark.jobGroup.id"] == "millstream load g"
    assert str(shown["spark.job.description"]).endswith(": orders-0 [0, 10)")
    assert stage.spark.properties == {"spark.jobGroup.id": None, "spark.job.description": "mine"}
