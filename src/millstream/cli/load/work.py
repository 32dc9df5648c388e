"""What the commands of ``millstream load`` do. Spark starts in the background, before heavy imports."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.cli.clients import broker_settings, client_properties, open_admin
from millstream.cli.load.progress import shown
from millstream.cli.load.report import print_report
from millstream.cli.properties import read_properties
from millstream.cli.signals import signals_end
from millstream.config import ConsumerConfig
from millstream.errors import UnknownTopicOrPartitionError
from millstream.spark.load.settings import CLIENT_SETTINGS, OPTIONS
from millstream.terminal.broker_check import require_broker, typed_addresses
from millstream.terminal.outcome import DONE, CommandError, UsageError, warn
from millstream.terminal.output import count, print_json, print_table

if TYPE_CHECKING:
    from millstream.spark.load.load import Load
    from millstream.spark.load.replay import ReplayReport
    from millstream.spark.load.status import LoadStatus
    from millstream.spark.sinks.base import Sink

_MASTERS = r"local|spark|k8s|yarn$|sc://"
"""Masters that Spark accepts, and Spark Connect; for others Spark prints a Java stack trace."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What was typed."""

    topics: Sequence[str]
    group: str
    to: str
    servers: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values of ``LoadSettings`` that were typed as options."""
    properties: Iterable[str] = ()
    master: str = "local[*]"
    conf: Iterable[str] = ()


def run_load(order: LoadOrder, every: float | None, *, as_json: bool) -> int:
    """Load once, or every ``every`` seconds until a signal stops it; returns the exit code."""
    with _load(order) as load, _hints(order), shown(load):
        report = load.run_once() if every is None else load.run(every=every)
    if as_json:
        print_json(report.as_dict())
    else:
        print_report(report, once=every is None)
    sys.stdout.flush()
    return DONE if load.stop_signal is None else 128 + load.stop_signal


@contextmanager
def _hints(order: LoadOrder) -> Iterator[None]:
    """Make "unknown topic" name the nearest topic, or how to create it."""
    try:
        yield
    except UnknownTopicOrPartitionError:
        from millstream.cli.errors.names import require_topics
        from millstream.cli.load.group import near_command

        with open_admin(order.servers) as admin:
            known = admin.list_topics(internal=True)
        if not order.topics:
            raise
        command = near_command(order.topics[0])
        if command is not None and order.topics[0] not in known:
            raise CommandError(
                f"there is no topic {order.topics[0]!r}: did you mean 'millstream load {command}'?"
            ) from None
        require_topics(order.topics, known)
        raise


@contextmanager
def _load(order: LoadOrder) -> Iterator[Load]:
    """The load that was typed. Its sink is closed when the block ends."""
    make = _session(order)
    properties = client_properties(order.properties, _not_properties(), ConsumerConfig)
    typed_addresses(order.servers)
    ConsumerConfig.from_settings({**properties, "bootstrap.servers": order.servers})  # SSL, for example
    settings = {**order.settings, "properties": properties}
    file_size = settings.get("target_file_size")
    if not settings.get("compact"):  # Load has it for the files that are joined, the sink for all
        settings["target_file_size"] = None
    require_broker(order.servers)
    from millstream.spark.load.engine.background import BackgroundValue
    from millstream.spark.runtime.launch import end_starts

    with signals_end(end_starts):  # no group is joined yet, and nothing is written
        spark = BackgroundValue(make, "spark")  # the slowest part: it starts before other imports
        from millstream.spark.load.load import Load
        from millstream.spark.sinks.kinds import sink_for

        found = sink_for(order.to, order.topics, broker_settings(order.servers), file_size)
    with closing(found) as sink:
        yield Load(
            spark.get,
            topics=order.topics,
            group_id=order.group,
            sink=sink,
            bootstrap_servers=order.servers,
            **settings,
        )


def _not_properties() -> dict[str, str]:
    """Consumer settings that --property refuses, and what to use instead."""
    own = {kafka: f"use {OPTIONS[name]}" for kafka, name in CLIENT_SETTINGS.items()}
    return {**own, "enable.auto.commit": "a load commits by itself"}


def _session(order: LoadOrder) -> Callable[[], Any]:
    """A function that starts the Spark session."""
    if not re.match(_MASTERS, order.master):
        raise UsageError(
            f"--master {order.master!r} is not a Spark master: give local[*], spark://HOST:PORT, yarn, "
            "k8s://… or sc://HOST:PORT"
        )
    conf = read_properties(order.conf, "--conf")

    def make() -> Any:
        from millstream.spark.runtime.session import load_session

        session = load_session(order.master, queries=order.settings.get("sql") is not None, **conf)
        _silence_query_log()  # not before: importing PySpark takes a while, and Java starts meanwhile
        return session

    return make


def _silence_query_log() -> None:
    """Disable PySpark's own log of invalid queries: the command reports them in one line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


# ---- status, rejected rows, replay


def read_status(
    servers: str, to: str, group: str, topics: Sequence[str], pattern: str | None = None
) -> LoadStatus:
    """The status of a load."""
    from millstream.cli.errors.names import hints_for_a_new_group, hints_for_topics
    from millstream.spark.load.status import status
    from millstream.spark.sinks.kinds import sink_for

    with (
        closing(sink_for(to, topics, broker_settings(servers))) as sink,
        open_admin(servers) as admin,
        hints_for_topics(admin, topics),
        hints_for_a_new_group(admin, group),
    ):
        return status(admin, sink, group, topics, pattern=pattern)


def read_rejected(servers: str, to: str, limit: int) -> list[dict[str, Any]]:
    """The newest rejected rows, ready for printing."""
    with _loaded_table(to, servers) as sink:
        return [_printable(row) for row in sink.read_rejected(limit).to_pylist()]


def count_reasons(servers: str, to: str) -> list[tuple[int, str]]:
    """How many rows were rejected for each of the ten most frequent reasons."""
    from millstream.spark.load.replay import rejected_batches

    found: Counter[str] = Counter()
    with _loaded_table(to, servers) as sink:
        for batch in rejected_batches(sink):
            for one in batch.column("reason").value_counts().to_pylist():
                found[one["values"]] += one["counts"]
    return [(number, reason) for reason, number in found.most_common(10)]


@contextmanager
def _loaded_table(to: str, servers: str) -> Iterator[Sink]:
    """The sink at ``to``; raise where no load has made its table: nothing could be rejected there."""
    from millstream.spark.sinks.kinds import kind_of, missing_table, sink_for

    brokers = broker_settings(servers)
    with closing(sink_for(to, (), brokers)) as sink:
        if kind_of(to).on_brokers:
            require_broker(servers)
        if (problem := missing_table(to, sink, brokers)) is not None:
            raise CommandError(problem)
        yield sink


def _printable(row: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            shown[name] = value.decode(errors="backslashreplace")
        elif name == "headers":
            shown[name] = [_printable(header) for header in value or ()]
        else:
            shown[name] = value.isoformat() if hasattr(value, "isoformat") else value
    return shown


def run_replay(order: LoadOrder, *, as_json: bool) -> None:
    """Load rejected rows again, and print the result."""
    from millstream.spark.load.replay import NOT_LOADED

    with _loaded_table(order.to, order.servers) as sink:
        report = _replayed(order, sink)
    if report.reasons[NOT_LOADED] == report.examined > 0:
        warn(f"group {order.group} has loaded none of these rows into {sink.name}: is its name right?")
    if as_json:
        print_json(report.as_dict())
        return
    if report.reasons:
        print_table(("still rejected", "reason"), [(n, why) for why, n in report.reasons.most_common()])
        print()
    print(f"{report.readmitted:,} of {count(report.examined, 'rejected row')} moved to {sink.name}")


def _replayed(order: LoadOrder, sink: Sink) -> ReplayReport:
    from millstream.spark.load.pipeline.pipeline import Pipeline
    from millstream.spark.load.replay import replay
    from millstream.spark.load.settings import Shaping

    pipeline = Pipeline(Shaping(**order.settings))
    spark = _session(order)() if pipeline.needs_spark_for_tables else None
    return replay(spark, sink, pipeline, group_id=order.group)
