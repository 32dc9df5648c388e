"""``Load``: topics into tables, exactly once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

from millstream.admin import Admin
from millstream.errors import ConfigError, MillstreamError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.decisions.starts import Rules
from millstream.spark.load.declarations import parameter_list, taking
from millstream.spark.load.engine.background import BackgroundValue
from millstream.spark.load.engine.clients import ClientSettings
from millstream.spark.load.engine.context import RunContext
from millstream.spark.load.engine.interruptible_admin import InterruptibleAdmin
from millstream.spark.load.engine.members import LoadMember
from millstream.spark.load.engine.planning import Aligned, Planner
from millstream.spark.load.engine.requirements import (
    bounds_for,
    check_fit,
    check_query,
    check_tables,
    tables_for,
)
from millstream.spark.load.engine.run import LoadRun
from millstream.spark.load.engine.stopping import StoppedError, StopRequest
from millstream.spark.load.engine.topics import LoadedTopics
from millstream.spark.load.engine.watching import LoadSnapshot
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.points import Detail, Point, ignore
from millstream.spark.load.report import LoadReport
from millstream.spark.load.settings import LoadSettings
from millstream.spark.sinks.capabilities import FindsRangeStart, names_of

log = logging.getLogger("millstream.spark.load")

TARGET_FILE_SIZE: Final = 128 << 20


class Load:
    """Loads topics into a sink, exactly once, as a member of a consumer group whose work Spark tasks do::

        report = Load(spark, topics=["orders"], group_id="orders-lake", bootstrap_servers="localhost:9092",
                      sink=DeltaSink("lake/orders")).run_once()

    Running it again, after a crash as well, continues from the sink's progress: no row is lost, none is there
    twice. An object runs once at a time and may run again. ``stop`` ends a run from any thread; Ctrl-C and
    SIGTERM end it in the main thread.
    """

    @taking(LoadSettings)
    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self._group_id, self._sink = settings.group_id, settings.sink
        self._clients = ClientSettings(settings)
        self._pipeline = Pipeline(settings.shaping)
        check_fit(settings, self._pipeline)
        bounds = Bounds(settings.max_records, settings.max_bytes, settings.max_seconds)
        self._bounds = bounds_for(settings.sink, bounds)
        self._observer = settings.observer or ignore
        self._made: Any = None
        self._making = threading.Lock()
        self._stop = StopRequest()
        self._has_run = False
        self._run: LoadRun | None = None
        self._running = threading.Lock()
        self.watched = settings.observer is not None
        """Whether Spark's tasks are watched while they run, for ``snapshot``."""

    # ---- running

    def run_once(self) -> LoadReport:
        """Load up to the current ends of the logs, in as many cycles as that takes.

        When it returns, all of that is in the sink, loaded by this or another member of the group. Raises
        LoadFailedError and DataLostError; running it again is safe.
        """
        return self._go(LoadRun.once)

    def run(self, every: float = 10.0) -> LoadReport:
        """Load new records every ``every`` seconds (0: as soon as there are any), until it is stopped."""
        if every < 0:
            raise ConfigError(f"every is {every}: it must not be negative", setting="every")
        return self._go(lambda run: run.forever(every))

    def stop(self) -> None:
        """Stop as soon as that can be done cleanly: a cycle that is not committing yet is aborted."""
        self._stop.request()

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the last run, if one did."""
        return self._stop.signal

    def snapshot(self) -> LoadSnapshot:
        """The progress of the current run. From any thread."""
        run = self._run
        return LoadSnapshot() if run is None else run.snapshot()

    def _go(self, work: Callable[[LoadRun], LoadReport]) -> LoadReport:
        if not self._running.acquire(blocking=False):
            raise MisuseError("this load is already running: create another one")
        if self._has_run:  # a stop of an earlier run does not end this one
            self._stop = StopRequest()
        self._has_run = True
        try:
            with self._stop.by_signals(), ExitStack() as stack:
                return work(self._start(stack))
        except StoppedError:  # before anything was loaded
            return LoadReport(self._group_id, self._sink.name, stopped=True)
        finally:
            self._run = None
            self._running.release()

    # ---- starting: Spark, the group and the sink at the same time

    def _start(self, stack: ExitStack) -> LoadRun:
        settings = self._settings
        member = LoadMember(
            self._clients.member,
            settings.topics,
            pattern=settings.pattern,
            on_rebalance=lambda: self._observer(Point.REBALANCING, Detail()),
            give_up_seconds=self._clients.give_up_seconds,
        )
        session = BackgroundValue(self._session, "spark")
        prepared = BackgroundValue(lambda: self._prepare(session), "sink")
        admin = stack.enter_context(Admin(self._clients.admin))
        brokers = InterruptibleAdmin(admin, self._stop)
        topics = LoadedTopics(
            brokers,
            settings.topics,
            pattern=settings.pattern,
            read_committed=self._clients.read_committed,
        )
        topics.look()  # raise for a missing topic before joining the group
        stack.push(lambda kind, error, trace: self._forget_group(admin, error))
        stack.push(lambda kind, error, trace: member.close(at_once=_is_at_once(kind)))
        self._stop.on_request(member.abort_cycle)
        member.start()
        prepared.get(self._stop)
        context = RunContext(
            group_id=self._group_id,
            sink=self._sink,
            pipeline=self._pipeline,
            task_settings=self._clients.tasks,
            bounds=self._bounds,
            observer=self._observer,
            watched=self.watched,
            compact_bytes=(settings.target_file_size or TARGET_FILE_SIZE) if settings.compact else None,
            read_committed=self._clients.read_committed,
            retry_seconds=self._clients.retry_seconds,
        )
        rules = Rules(
            self._group_id,
            self._sink.name,
            settings.starting,
            settings.fail_on_data_loss,
            settings.on_recreated,
            names_of(self._sink),
        )
        planner = Planner(rules, topics, self._sink, self._aligned())
        self._run = LoadRun(context, lambda: session.get(self._stop), member, planner, self._stop)
        return self._run

    def _forget_group(self, admin: Admin, error: BaseException | None) -> None:
        """Delete the group of a load that was refused or stopped before its first commit, if it is empty."""
        if isinstance(error, Exception):
            with suppress(MillstreamError):  # has members again, is gone, or may not be deleted
                if not admin.group_offsets(self._group_id, timeout=2.0):
                    admin.delete_groups(self._group_id, timeout=2.0)

    def _session(self) -> Any:
        """The user's session, or what the user's function makes, called once."""
        with self._making:
            if self._made is None:
                given = self._settings.spark
                self._made = given() if callable(given) else given
            return self._made

    def _prepare(self, session: BackgroundValue[Any]) -> None:
        spark = session.get() if self._pipeline.needs_spark_for_tables else None
        tables = tables_for(self._sink, self._pipeline, spark)
        check_query(self._sink, self._pipeline)
        check_tables(self._sink, tables)
        self._sink.prepare(self._group_id, tables)

    def _aligned(self) -> Aligned | None:
        """For rows that aggregate whole ranges: moves a rewind to the start of such a range."""
        sink = self._sink
        if not self._pipeline.aggregates or not isinstance(sink, FindsRangeStart):
            return None

        def aligned(partition: TopicPartition, offset: int) -> int:
            found = sink.range_start(partition.topic, partition.partition, offset)
            return offset if found is None else found

        return aligned


def _is_at_once(kind: type[BaseException] | None) -> bool:
    return kind is not None and issubclass(kind, KeyboardInterrupt)


if Load.__doc__ is not None:  # python -OO has none
    Load.__doc__ += f"\n{parameter_list(LoadSettings)}\n    "
