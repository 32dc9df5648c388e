"""One run of ``millstream scan``: plan the read, shape its rows, write them, and report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from millstream.cli.errors.names import require_topics
from millstream.cli.positions import AtOffset, AtTime, BeforeEnd, End, Position
from millstream.cli.progress import meter
from millstream.cli.properties import unescaped
from millstream.cli.scan import shaping
from millstream.cli.scan.files import DroppableSink, whole_file
from millstream.cli.scan.options import FILES, DecodeOptions, RangeOptions, RowOptions
from millstream.cli.scan.outputs import OUTPUTS, RowOutput, TableOutput, without_constants
from millstream.consumer import Consumer
from millstream.scanning import bounds
from millstream.scanning.scan import Scan, scan
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import count, print_json, say, size

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 253_402_300_799_999
"""The last millisecond that a datetime has."""
STANDARD_OUTPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: a format and a file, or standard output where ``path`` is None."""

    format: str
    path: Path | None


def read_target(to: str | None, format: str) -> Target:
    """Read ``--to``; raises UsageError. Without it, rows are printed in ``format``."""
    if to is None or to == STANDARD_OUTPUT:
        return Target(format, None)
    kind, colon, place = to.partition(":")
    if not colon or kind not in FILES or not place:
        raise UsageError(
            f"--to {to!r} names no file: write parquet:FILE, csv:FILE or json:FILE, or - for standard output"
        )
    return Target(kind, None if place == STANDARD_OUTPUT else Path(place))


def bound_of(position: Position | str) -> Any:
    """A position as ``scan`` takes it."""
    match position:
        case End():
            return position.value
        case AtOffset(offset):
            return offset
        case BeforeEnd(number):
            return bounds.BeforeEnd(number)
        case AtTime(timestamp_ms):
            return _EPOCH + timedelta(milliseconds=min(timestamp_ms, _LAST_YEAR))
        case name:
            return name


def run(
    topic: str,
    settings: Mapping[str, Any],
    limits: tuple[Any, Any],
    reading: RangeOptions,
    decoding: DecodeOptions,
    rows: RowOptions,
    target: Target,
    *,
    as_json: bool,
) -> None:
    """Scan, and write the rows to the target; with a file, say what was written."""
    with Consumer(settings) as consumer:
        require_topics([topic], consumer.topics())
    made = _scan(topic, settings, limits, reading, decoding)
    with made:
        schema, batches = _shaped(made, rows, is_table=target.format == "table")
        with _opened(target, schema) as output:
            total = sum(each.offsets for each in made.ranges)
            wanted = target.path is not None or not sys.stdout.isatty()
            with meter("reading", rows.limit or total, wanted=wanted, in_records=True) as progress:
                written = 0
                for batch in batches:
                    output.write(batch)
                    written += batch.num_rows
                    progress(written, written)
            output.finish()
    if target.path is None:
        say(count(written, "row"))
        return
    length = target.path.stat().st_size if target.path.is_file() else 0
    if as_json:
        print_json({"topic": topic, "rows": written, "file": str(target.path), "bytes": length})
    else:
        print(f"{count(written, 'row')} of {topic} written to {target.path} ({size(length)})")


def _scan(
    topic: str,
    settings: Mapping[str, Any],
    limits: tuple[Any, Any],
    reading: RangeOptions,
    decoding: DecodeOptions,
) -> Scan:
    group = {} if reading.group is None else {"group.id": reading.group}
    return scan(
        topic,
        {**settings, **group},
        start=limits[0],
        end=limits[1],
        partitions=reading.partitions or None,
        value=decoding.value_format,
        key=decoding.key_format,
        schema=decoding.schema,
        headers=decoding.headers,
        bad_values=decoding.bad_values,  # type: ignore[arg-type]  # checked there
        fail_on_data_loss=not reading.accept_data_loss,
        infer_from=decoding.infer,
        avro_schema=decoding.avro_schema,
        avro_prefix=decoding.avro_prefix,
        csv_delimiter=unescaped(decoding.csv_delimiter),
    )


def _shaped(made: Scan, rows: RowOptions, *, is_table: bool) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows as they are written, and their schema."""
    schema = shaping.plain_schema(made.schema)
    steps = [shaping.plain(schema)]
    if rows.where is not None:
        steps.append(shaping.where(rows.where, schema))
    columns = rows.select
    if columns is None and is_table:
        columns = ", ".join(f"`{name}`" for name in without_constants(schema.names))
    if columns is not None:
        schema, chosen = shaping.select(columns, schema)
        steps.append(chosen)

    def shaped() -> Iterator[pa.RecordBatch]:
        for batch in made:
            for step in steps:
                batch = step(batch)
            yield batch

    return schema, shaping.limited(shaped(), rows.limit)


@contextmanager
def _opened(target: Target, schema: pa.Schema) -> Iterator[RowOutput]:
    if target.format == "table":
        yield TableOutput(schema)
        return
    with _binary(target) as file:
        sink = DroppableSink(file)
        try:
            yield OUTPUTS[target.format](sink, schema)
        finally:
            sink.drop()


@contextmanager
def _binary(target: Target) -> Iterator[BinaryIO]:
    """The file, or standard output, which stays open: the command flushes it at its end."""
    if target.path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    with whole_file(target.path) as file:
        yield file
