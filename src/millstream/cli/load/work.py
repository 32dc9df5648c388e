"""``millstream load`` at work. Spark is started in the background; nothing heavy is imported before that."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from millstream.cli.clients import client_properties, open_admin
from millstream.cli.load.progress import shown
from millstream.cli.load.report import print_report
from millstream.cli.properties import read_properties, unescaped
from millstream.cli.signals import signals_held
from millstream.errors import UnknownTopicOrPartitionError
from millstream.terminal.broker_check import require_broker
from millstream.terminal.outcome import DONE, CommandError, UsageError, warn
from millstream.terminal.output import count, print_json, print_table

if TYPE_CHECKING:
    from millstream.spark.load.decisions.starts import OnRecreated, Starting
    from millstream.spark.load.load import Load
    from millstream.spark.load.replay import ReplayReport
    from millstream.spark.load.status import LoadStatus
    from millstream.spark.sinks.base import Sink

_NOT_PROPERTIES = {
    "group.id": "use --group",
    "group.instance.id": "use --instance-id",
    "auto.offset.reset": "use --starting",
    "enable.auto.commit": "a load commits by itself",
}
_MASTERS = r"local|spark|k8s|yarn$|sc://"
"""What Spark itself asks of a master, before it says so with a traceback of Java's; and Spark Connect."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """What was typed."""

    topics: Sequence[str]
    group: str
    to: str
    servers: str
    properties: Iterable[str] = ()
    master: str = "local[*]"
    conf: Iterable[str] = ()
    value_format: str | None = None
    schema: str | None = None
    checks: Sequence[str] = ()
    sql: str | None = None
    headers: bool = True
    avro_schema: str | None = None
    avro_prefix: str = "none"
    csv_delimiter: str = ","
    csv_quote: str = '"'
    partition_by: Sequence[str] = ()
    add_columns: bool = False
    instance_id: str | None = None
    starting: str = "earliest"
    accept_data_loss: bool = False
    on_recreated: str = "fail"
    max_records: int | None = None
    max_bytes: str | None = None
    max_seconds: float | None = None
    target_file_size: str | None = None
    compact: bool = False


def run_load(order: LoadOrder, every: float | None, *, as_json: bool) -> int:
    """Load once, or ``every`` so many seconds until a signal ends it; returns the exit code."""
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
    """Turn a broker's "no such topic" into one that names the nearest topic, or how to make it."""
    try:
        yield
    except UnknownTopicOrPartitionError:
        from millstream.cli.errors.names import require_topics
        from millstream.cli.load.command import near_command

        with open_admin(order.servers) as admin:
            known = admin.list_topics(internal=True)
        command = near_command(order.topics[0])
        if command is not None and order.topics[0] not in known:
            raise CommandError(
                f"there is no topic {order.topics[0]!r}: did you mean 'millstream load {command}'?"
            ) from None
        require_topics(order.topics, known)
        raise


@contextmanager
def _load(order: LoadOrder) -> Iterator[Load]:
    """What was typed as a load. Its sink is closed when the block ends."""
    make = _session(order)
    max_bytes = read_size(order.max_bytes, "--max-bytes")
    target_file_size = read_size(order.target_file_size, "--target-file-size")
    properties = client_properties(order.properties, _NOT_PROPERTIES)
    schema, sql = _text_or_file(order.schema, "--schema"), _text_or_file(order.sql, "--sql")
    _require_names(order)
    require_broker(order.servers)
    from millstream.spark.load.engine.background import Later

    brokers = {"bootstrap_servers": order.servers}
    with signals_held():
        spark = Later(make, "spark")  # it takes longest, so it begins before the rest is even imported
        from millstream.spark.load.load import Load
        from millstream.spark.sinks.kinds import sink_for

        found = sink_for(order.to, order.topics, brokers, target_file_size)
    with closing(found) as sink:
        yield Load(
            spark.get,
            topics=order.topics,
            group_id=order.group,
            sink=sink,
            bootstrap_servers=order.servers,
            properties=properties,
            value_format=order.value_format,
            schema=schema,
            checks=order.checks,
            sql=sql,
            headers=order.headers,
            avro_schema=order.avro_schema,
            avro_prefix=order.avro_prefix,
            csv_delimiter=unescaped(order.csv_delimiter),
            csv_quote=order.csv_quote,
            partition_by=order.partition_by,
            add_columns=order.add_columns,
            instance_id=order.instance_id,
            starting=cast("Starting", order.starting),  # Load checks it
            fail_on_data_loss=not order.accept_data_loss,
            on_recreated=cast("OnRecreated", order.on_recreated),
            max_records=order.max_records,
            max_bytes=max_bytes,
            max_seconds=order.max_seconds,
            target_file_size=target_file_size if order.compact else None,
            compact=order.compact,
        )


def _require_names(order: LoadOrder) -> None:
    if not order.group:
        raise UsageError("--group is empty: name a group")


def _session(order: LoadOrder) -> Callable[[], Any]:
    """What makes the Spark session, when it is called."""
    if not re.match(_MASTERS, order.master):
        raise UsageError(
            f"--master {order.master!r} is no Spark: give local[*], spark://HOST:PORT, yarn, k8s://… or "
            "sc://HOST:PORT"
        )
    conf = read_properties(order.conf, "--conf")

    def make() -> Any:
        from millstream.spark.runtime.java import load_session

        session = load_session(order.master, queries=order.sql is not None, **conf)
        _keep_from_telling_twice()  # not before: importing PySpark takes a while, in which Java starts
        return session

    return make


def _keep_from_telling_twice() -> None:
    """PySpark logs a query that makes no sense, with all of Java's stack; the command says it in a line."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def read_size(text: str | None, option: str) -> int | None:
    """Bytes, as ``1048576``, ``1024k``, ``1MiB`` or ``1 MB``."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is no size: write a number of bytes, or one like 64MiB")
    return max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def _text_or_file(text: str | None, option: str) -> str | None:
    """The text itself, or after @ what a file holds."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {text!r}: {(error.strerror or str(error)).lower()}") from None


# ---- looking at loads


def read_status(servers: str, to: str, group: str, topics: Sequence[str]) -> LoadStatus:
    """How a load stands."""
    from millstream.cli.errors.names import hints_for_a_new_group, hints_for_topics
    from millstream.spark.load.status import status
    from millstream.spark.sinks.kinds import sink_for

    with (
        closing(sink_for(to, topics, {"bootstrap_servers": servers})) as sink,
        open_admin(servers) as admin,
        hints_for_topics(admin, topics),
        hints_for_a_new_group(admin, group),
    ):
        return status(admin, sink, group, topics)


def read_rejected(servers: str, to: str, limit: int) -> list[dict[str, Any]]:
    """The newest rejected rows, ready for printing."""
    with _loaded_table(to, servers) as sink:
        return [_printable(row) for row in sink.read_rejected(limit).to_pylist()]


@contextmanager
def _loaded_table(to: str, servers: str) -> Iterator[Sink]:
    """The sink at ``to``; raise where no load has made its table: nothing could be rejected there."""
    from millstream.spark.sinks.kinds import kind_of, missing_table, sink_for

    brokers = {"bootstrap_servers": servers}
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
    """Feed rejected rows back."""
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
    from millstream.spark.load.pipeline.pipeline import Pipeline, Shaping
    from millstream.spark.load.replay import replay

    pipeline = Pipeline.of(
        Shaping(
            value_format=order.value_format,
            schema=_text_or_file(order.schema, "--schema"),
            checks=order.checks,
            sql=_text_or_file(order.sql, "--sql"),
            avro_schema=order.avro_schema,
            avro_prefix=order.avro_prefix,
            csv_delimiter=unescaped(order.csv_delimiter),
            csv_quote=order.csv_quote,
            partition_by=order.partition_by,
            add_columns=order.add_columns,
        )
    )
    spark = _session(order)() if pipeline.needs_spark_for_tables else None
    return replay(spark, sink, pipeline, group_id=order.group)
