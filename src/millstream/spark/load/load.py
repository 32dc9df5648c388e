"""Load: topics into tables, exactly once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError, MisuseError
from millstream.model import TopicPartition
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.decisions.starts import OnRecreated, Rules, Starting
from millstream.spark.load.engine.background import Later
from millstream.spark.load.engine.clients import Clients
from millstream.spark.load.engine.interruptible_admin import Asking
from millstream.spark.load.engine.members import Member
from millstream.spark.load.engine.planning import Aligned, Planner
from millstream.spark.load.engine.requirements import Wishes, bounds_for, check_fit, check_query, check_tables
from millstream.spark.load.engine.run import Job, Run
from millstream.spark.load.engine.stopping import Stop, StoppedError
from millstream.spark.load.engine.topics import Topics
from millstream.spark.load.engine.watching import Snapshot
from millstream.spark.load.pipeline.pipeline import Pipeline, Shaping
from millstream.spark.load.points import Detail, Observer, Point, nobody
from millstream.spark.load.report import LoadReport
from millstream.spark.sinks.base import Sink
from millstream.spark.sinks.capabilities import FindsRangeStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("millstream.spark.load")

TARGET_FILE_SIZE: Final = 128 << 20


class Load:
    """Topics into a sink, as a member of a consumer group whose work is done by Spark tasks::

        report = Load(spark, topics=["orders"], group_id="orders-lake", bootstrap_servers="localhost:9092",
                      sink=DeltaSink("lake/orders")).run_once()

    ``spark`` is a session, or a function that makes one: it is then made while the group is joined. Running
    it again, after whatever, goes on where the sink stands: no row is lost, none is there twice.

    - ``value_format`` (raw, json, avro, csv), ``schema``, ``checks``, ``sql``, ``headers``: how records are
      made rows; ``avro_*`` and ``csv_*`` say more of the format. ``partition_by`` and ``add_columns`` are
      about the table: what its files are sorted into, and whether it is given columns that it lacks.
    - ``instance_id`` makes it a static member: a restart within the session moves no partition.
      ``properties`` are settings of its consumers, under Kafka's names.
    - ``starting`` (earliest, latest): where, if neither sink nor group say. ``fail_on_data_loss`` and
      ``on_recreated`` (fail, append): see docs/load.md.
    - ``max_records``, ``max_bytes``, ``max_seconds`` bound each cycle; ``target_file_size`` and ``compact``
      are for sinks with files.
    - ``observer(point, detail)`` is told what happens.

    An object runs once at a time, and may run again; ``stop`` ends a run from any thread, Ctrl-C and SIGTERM
    do in the main one.
    """

    def __init__(
        self,
        spark: SparkSession | Callable[[], SparkSession],
        *,
        topics: Sequence[str],
        group_id: str,
        sink: Sink,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        value_format: str | None = None,
        schema: str | None = None,
        checks: Sequence[str] = (),
        sql: str | None = None,
        headers: bool = True,
        avro_schema: str | None = None,
        avro_prefix: str = "none",
        csv_delimiter: str = ",",
        csv_quote: str = '"',
        partition_by: Sequence[str] = (),
        add_columns: bool = False,
        instance_id: str | None = None,
        properties: Mapping[str, object] | None = None,
        starting: Starting = "earliest",
        fail_on_data_loss: bool = True,
        on_recreated: OnRecreated = "fail",
        max_records: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        target_file_size: int | None = None,
        compact: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self._topics = _names(topics)
        _check_named(group_id=group_id, instance_id=instance_id)
        self._group_id = group_id
        self._sink = sink
        _check_choice("starting", starting, ("earliest", "latest"))
        _check_choice("on_recreated", on_recreated, ("fail", "append"))
        bounds = Bounds(max_records, max_bytes, max_seconds)
        _check_positive(max_records=max_records, max_bytes=max_bytes, max_seconds=max_seconds)
        _check_positive(target_file_size=target_file_size)
        if target_file_size is not None and not compact:
            raise ConfigError(
                "target_file_size is how large files become that are joined, so it needs compact=True: how "
                "large files are written is said to the sink, as in DeltaSink(…, target_file_size=…)"
            )
        servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        self._clients = Clients(servers, group_id, instance_id, properties or {})
        self._rules = Rules(group_id, sink.name, starting, fail_on_data_loss, on_recreated)
        self._pipeline = Pipeline.of(
            Shaping(
                value_format=value_format,
                schema=schema,
                checks=checks,
                sql=sql,
                headers=headers,
                partition_by=partition_by,
                add_columns=add_columns,
                avro_schema=avro_schema,
                avro_prefix=avro_prefix,
                csv_delimiter=csv_delimiter,
                csv_quote=csv_quote,
                topics=self._topics,
            )
        )
        check_fit(sink, self._pipeline, Wishes(self._topics, servers, compact))
        self._bounds = bounds_for(sink, bounds)
        self._target_file_size = target_file_size
        self._compact = compact
        self._observer = observer or nobody
        self._spark = spark
        self._made: Any = None
        self._making = threading.Lock()
        self._stop = Stop()
        self._has_run = False
        self._run: Run | None = None
        self._running = threading.Lock()
        self.watched = observer is not None
        """Whether Spark's tasks are looked at while they run, for ``snapshot``."""

    # ---- running

    def run_once(self) -> LoadReport:
        """Load up to the ends seen at the start, in as many cycles as that takes.

        When it returns, all of that is in the sink, whichever driver of the group has loaded it. Raises
        LoadFailedError and DataLostError; running it again is safe.
        """
        return self._go(Run.once)

    def run(self, every: float = 10.0) -> LoadReport:
        """Load what is new every so many seconds (0: as soon as it is there), until it is stopped."""
        if every < 0:
            raise ConfigError(f"every is {every}: it must not be negative")
        return self._go(lambda run: run.forever(every))

    def stop(self) -> None:
        """End as soon as that can be done cleanly: a cycle that is not committing yet is broken off."""
        self._stop.request()

    @property
    def stop_signal(self) -> int | None:
        """The signal that ended the last run, if one did."""
        return self._stop.signal

    def snapshot(self) -> Snapshot:
        """How far it is. From any thread."""
        run = self._run
        return Snapshot() if run is None else run.snapshot()

    def _go(self, work: Callable[[Run], LoadReport]) -> LoadReport:
        if not self._running.acquire(blocking=False):
            raise MisuseError("this load is running already: make another one")
        if self._has_run:  # what ended an earlier run does not end this one
            self._stop = Stop()
        self._has_run = True
        try:
            with self._stop.by_signals(), ExitStack() as stack:
                return work(self._start(stack))
        except StoppedError:  # before it had begun
            return LoadReport(self._group_id, self._sink.name, stopped=True)
        finally:
            self._run = None
            self._running.release()

    # ---- starting: Spark, the group and the sink at the same time

    def _start(self, stack: ExitStack) -> Run:
        from millstream.admin import Admin

        member = Member(
            self._clients.member,
            self._topics,
            on_rebalance=lambda: self._observer(Point.REBALANCING, Detail()),
            give_up_seconds=self._clients.give_up_seconds,
        )
        session = Later(self._session, "spark")
        prepared = Later(lambda: self._prepare(session), "sink")
        admin = stack.enter_context(Admin(self._clients.admin))
        brokers = Asking(admin, self._stop)
        topics = Topics(brokers, self._topics, read_committed=self._clients.read_committed)
        topics.look()  # a topic that is not there is said before anybody joins
        stack.push(lambda kind, error, trace: member.close(at_once=_is_at_once(kind)))
        self._stop.on_request(member.break_off)
        member.start()
        prepared.get(self._stop)
        job = Job(
            group_id=self._group_id,
            sink=self._sink,
            pipeline=self._pipeline,
            task_settings=self._clients.tasks,
            bounds=self._bounds,
            observer=self._observer,
            watched=self.watched,
            compact_bytes=(self._target_file_size or TARGET_FILE_SIZE) if self._compact else None,
            read_committed=self._clients.read_committed,
            patience_seconds=self._clients.patience_seconds,
        )
        planner = Planner(self._rules, topics, self._sink, self._aligned())
        self._run = Run(job, lambda: session.get(self._stop), member, planner, self._stop)
        return self._run

    def _session(self) -> Any:
        """The user's session, or one made once."""
        with self._making:
            if self._made is None:
                given = self._spark
                self._made = given() if callable(given) else given
            return self._made

    def _prepare(self, session: Later[Any]) -> None:
        spark = session.get() if self._pipeline.needs_spark_for_tables else None
        tables = self._pipeline.tables(spark)
        check_query(self._sink, self._pipeline)
        check_tables(self._sink, tables)
        self._sink.prepare(self._group_id, tables)

    def _aligned(self) -> Aligned | None:
        """Where rows stand for whole ranges, a rewind begins at the start of one."""
        sink = self._sink
        if not self._pipeline.aggregates or not isinstance(sink, FindsRangeStart):
            return None

        def aligned(partition: TopicPartition, offset: int) -> int:
            found = sink.range_start(partition.topic, partition.partition, offset)
            return offset if found is None else found

        return aligned


def _is_at_once(kind: type[BaseException] | None) -> bool:
    return kind is not None and issubclass(kind, KeyboardInterrupt)


def _names(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, str):
        raise ConfigError(f"topics is one text: it must be a list, as in topics=[{topics!r}]")
    names = list(dict.fromkeys(topics))
    if not names:
        raise ConfigError("topics is empty: name at least one")
    return names


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}: it is one of {', '.join(choices)}")


def _check_named(**values: str | None) -> None:
    for name, value in values.items():
        if value is not None and not value:
            raise ConfigError(f"{name} is empty: give it a name")


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ConfigError(f"{name} is {value}: it must be positive")
