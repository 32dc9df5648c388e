"""``millstream load`` at work. Spark is started in the background; nothing heavy is imported before that."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from millstream.cli.connect import client_properties, open_admin, require_broker
from millstream.cli.load_progress import shown
from millstream.cli.outcome import DONE, CommandError, UsageError
from millstream.cli.output import count, print_json, print_table, size
from millstream.cli.properties import read_properties, unescaped
from millstream.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from millstream.spark.load.decisions import OnRecreated, Starting
    from millstream.spark.load.load import Load
    from millstream.spark.load.report import LoadReport
    from millstream.spark.load.status import LoadStatus

_NOT_PROPERTIES = {
    "group.id": "use --group",
    "group.instance.id": "use --instance-id",
    "auto.offset.reset": "use --starting",
    "enable.auto.commit": "a load commits by itself",
}
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
    load = _load(order)
    with _hints(order), shown(load):
        report = load.run_once() if every is None else load.run(every=every)
    _print_report(report, as_json=as_json)
    sys.stdout.flush()
    return DONE if load.stop_signal is None else 128 + load.stop_signal


@contextmanager
def _hints(order: LoadOrder) -> Iterator[None]:
    """Turn a broker's "no such topic" into one that names the nearest topic, or how to make it."""
    try:
        yield
    except UnknownTopicOrPartitionError:
        from millstream.cli.load import near_command
        from millstream.cli.names import require_topics

        with open_admin(order.servers) as admin:
            known = admin.list_topics(internal=True)
        command = near_command(order.topics[0])
        if command is not None and order.topics[0] not in known:
            raise CommandError(
                f"there is no topic {order.topics[0]!r}: did you mean 'millstream load {command}'?"
            ) from None
        require_topics(order.topics, known)
        raise


def _load(order: LoadOrder) -> Load:
    make = _session(order)
    max_bytes = read_size(order.max_bytes, "--max-bytes")
    target_file_size = read_size(order.target_file_size, "--target-file-size")
    properties = client_properties(order.properties, _NOT_PROPERTIES)
    schema, sql = _text_or_file(order.schema, "--schema"), _text_or_file(order.sql, "--sql")
    _require_names(order)
    require_broker(order.servers)
    from millstream.spark.load.starting import Later

    spark = Later(make, "spark")  # it takes longest, so it begins before the rest is even imported
    from millstream.spark.load.load import Load
    from millstream.spark.sinks.addresses import sink_for

    brokers = {"bootstrap_servers": order.servers}
    sink = sink_for(order.to, order.topics, brokers, target_file_size)
    return Load(
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
    conf = read_properties(order.conf, "--conf")

    def make() -> Any:
        from millstream.spark.java import load_session

        return load_session(order.master, queries=order.sql is not None, **conf)

    return make


def read_size(text: str | None, option: str) -> int | None:
    """Bytes, as ``1048576``, ``1024k``, ``1MiB`` or ``1 MB``."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is no size: write a number of bytes, or 64MiB")
    return max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def _text_or_file(text: str | None, option: str) -> str | None:
    """The text itself, or after @ what a file holds."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option} {text!r}: {(error.strerror or str(error)).lower()}") from None


def _print_report(report: LoadReport, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_dict())
        return
    if report.ranges:
        rows = [(one.topic, one.partition, one.start, one.end, one.offsets) for one in report.ranges]
        print_table(("topic", "partition", "from", "to", "offsets"), rows)
        print()
    for note in report.notes:
        print(f"note: {note}")
    for lost in report.lost:
        print(f"lost: {lost.topic}-{lost.partition} [{lost.start}, {lost.end}), {lost.reason}")
    cycles, files = count(report.cycles, "cycle"), count(report.files, "file")
    speed = f", {report.records / report.seconds:,.0f} records/s" if report.seconds > 0 else ""
    print(
        f"{count(report.loaded, 'row')} loaded into {report.sink}, {report.rejected:,} rejected; "
        f"{cycles}, {files}, {size(report.bytes)}, {report.seconds:.1f} s{speed}"
    )


# ---- looking at loads


def read_status(servers: str, to: str, group: str, topics: Sequence[str]) -> LoadStatus:
    """How a load stands."""
    from millstream.cli.names import hints_for_topics
    from millstream.spark.load.status import status
    from millstream.spark.sinks.addresses import sink_for

    sink = sink_for(to, topics, {"bootstrap_servers": servers})
    with open_admin(servers) as admin, hints_for_topics(admin, topics):
        return status(admin, sink, group, topics)


def read_rejected(servers: str, to: str, limit: int) -> list[dict[str, Any]]:
    """The newest rejected rows, ready for printing."""
    from millstream.spark.sinks.addresses import sink_for

    sink = sink_for(to, (), {"bootstrap_servers": servers})
    _require_table(to)
    return [_printable(row) for row in sink.read_rejected(limit).to_pylist()]


def _require_table(to: str) -> None:
    """Raise where a directory holds no table: nothing rejected is good news only of a table that is there."""
    kind, _, place = to.partition(":")
    table = Path(place)
    if (
        kind.lower() != "delta"
        or _is_a_table(table)
        or _is_a_table(table.with_name(f"{table.name}_rejected"))
    ):
        return
    beside = [path.name for path in table.parent.glob("*") if _is_a_table(path)]
    near = difflib.get_close_matches(table.name, beside, n=1)
    hint = f"did you mean delta:{table.with_name(near[0])}?" if near else "check the directory"
    raise CommandError(f"there is no table {to}: {hint}")


def _is_a_table(path: Path) -> bool:
    return (path / "_delta_log").is_dir()


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
    from millstream.spark.load.pipeline import Pipeline, Shaping
    from millstream.spark.load.replay import replay
    from millstream.spark.sinks.addresses import sink_for

    sink = sink_for(order.to, (), {"bootstrap_servers": order.servers})
    _require_table(order.to)
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
    report = replay(spark, sink, pipeline, group_id=order.group)
    if as_json:
        print_json(report.as_dict())
        return
    if report.reasons:
        print_table(("still rejected", "reason"), [(n, why) for why, n in report.reasons.most_common()])
        print()
    print(f"{report.readmitted:,} of {count(report.examined, 'rejected row')} moved to {sink.name}")
