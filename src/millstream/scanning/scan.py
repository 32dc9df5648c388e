"""``scan``, and what it returns: a range of a topic that can be read as Arrow record batches."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from millstream.config import ConsumerConfig
from millstream.config.keywords import ConsumerKeywords
from millstream.consumer import Consumer
from millstream.errors import ClosedError, ConfigError, UnknownTopicOrPartitionError
from millstream.extras import require
from millstream.model import TopicPartition
from millstream.scanning import bounds
from millstream.scanning.bounds import Bound, ReadBound
from millstream.scanning.feed import Feed, FeedSettings
from millstream.scanning.inference import infer
from millstream.scanning.values import (
    PARSED,
    Formats,
    json_parser,
    parser_of,
    schema_ddl,
    simple_format,
    value_format,
)
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange, listed
from millstream.spark.reading.reader import ReadRules
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_MOST_THREADS: Final = 4
_SAMPLED_PARTITIONS: Final = 16
_INSTEAD: Final = {
    "auto_offset_reset": "use start",
    "enable_auto_commit": "a scan commits nothing",
    "auto_commit_interval_ms": "a scan commits nothing",
    "group_instance_id": "a scan joins no group",
    "key_deserializer": "use key",
    "value_deserializer": "use value",
}


def scan(
    topic: str,
    settings: Mapping[str, object] | None = None,
    /,
    *,
    start: Bound = bounds.EARLIEST,
    end: Bound = bounds.LATEST,
    partitions: Iterable[int] | None = None,
    value: str = "bytes",
    key: str = "bytes",
    schema: str | pa.Schema | None = None,
    headers: bool = False,
    bad_values: Literal["fail", "null"] = "fail",
    fail_on_data_loss: bool = True,
    infer_from: int = 1_000,
    batch_rows: int = 65_536,
    threads: int | None = None,
    avro_schema: str | None = None,
    avro_prefix: str = "none",
    csv_delimiter: str = ",",
    csv_quote: str = '"',
    **keywords: Unpack[ConsumerKeywords],
) -> Scan:
    """Read a range of a topic as Arrow record batches, without a group.

    ``start`` and ``end`` are earliest, latest, committed (by the ``group_id``), an offset, a datetime with a
    zone, or one of them for each TopicPartition. ``end`` is not read itself; by default it is the end of each
    log now. ``value`` is bytes, string, a number's name, json, csv or avro. The columns of JSON are those of
    ``schema`` (Spark's DDL or a pyarrow.Schema), or inferred from the first ``infer_from`` records. Settings
    are a consumer's, as keywords or under Kafka's names in a mapping.
    """
    config = _config(settings, keywords)
    begins, ends = bounds.read_bound(start, "start"), bounds.read_bound(end, "end")
    bounds.check_order(begins, ends)
    _check_group(config, begins, ends)
    _check_numbers(infer_from=infer_from, batch_rows=batch_rows, threads=threads)
    formats = Formats(simple_format(key, "key"), value_format(value), headers, _is_null(bad_values))
    shaping = _shaping(
        formats.value,
        schema=schema_ddl(schema),
        avro_schema=avro_schema,
        avro_prefix=avro_prefix,
        csv_delimiter=csv_delimiter,
        csv_quote=csv_quote,
    )
    if shaping is not None:
        formats = replace(formats, parser=parser_of(shaping))
    client = {name.replace(".", "_"): each for name, each in {**(settings or {}), **keywords}.items()}
    queued_bytes = config.queued_max_bytes
    client.pop("queued_max_bytes", None)
    ranges = _plan(client, topic, partitions, begins, ends, fail_on_data_loss)
    stall_seconds = config.default_api_timeout_ms / 1000
    rules = ReadRules(batch_rows, fail_on_data_loss, stall_seconds, bounds.REMEDY, is_fresh=True)
    feeding = FeedSettings(client, formats.decoder, rules, threads or _threads(), queued_bytes)
    if formats.value == "json" and shaping is None:
        formats = replace(formats, parser=json_parser(_inferred(feeding, ranges, infer_from)))
    return Scan(ranges, formats, feeding)


def _config(settings: Mapping[str, object] | None, keywords: Any) -> ConsumerConfig:
    config = ConsumerConfig.from_settings(settings, keywords)
    for name in (*(settings or {}), *keywords):
        instead = _INSTEAD.get(name.replace(".", "_"))
        if instead is not None:
            raise ConfigError(f"{name} is not for a scan: {instead}", setting=name.replace(".", "_"))
    return config


def _check_group(config: ConsumerConfig, *given: ReadBound) -> None:
    for bound in given:
        if bounds.COMMITTED in bound.all() and config.group_id is None:
            raise ConfigError(
                f"{bound.name}=committed needs the group whose offsets count: give group_id (--group)",
                setting=bound.name,
            )


def _check_numbers(**given: object) -> None:
    for name, number in given.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise ConfigError(f"{name} is {number!r}: it must be a number from 1 on", setting=name)


def _is_null(bad_values: str) -> bool:
    if bad_values not in ("fail", "null"):
        raise ConfigError(f"bad_values is {bad_values!r}: it must be fail or null", setting="bad_values")
    return bad_values == "null"


def _shaping(value: str, **given: Any) -> Shaping | None:
    """How values are parsed, checked; None where they are not, or where their columns are inferred."""
    if value not in PARSED:
        if given["schema"] is not None:
            raise ConfigError(f"schema is not for value={value}: choose json or csv", setting="schema")
        value = "raw"
    elif value == "csv" and not given["schema"]:
        raise ConfigError("value=csv needs a schema, such as 'id LONG, price DOUBLE'", setting="schema")
    elif value == "avro" and given["avro_schema"] is None:
        raise ConfigError(
            "value=avro needs the schema that values are written with: give it as avro_schema",
            setting="avro_schema",
        )
    is_inferred = value == "json" and given["schema"] is None
    found = Shaping(value_format="raw" if is_inferred else value, **given)
    return None if found.is_raw else found


def _threads() -> int:
    return min(_MOST_THREADS, max(2, os.cpu_count() or 1))


# -- what the topic holds


def _plan(
    client: Mapping[str, Any],
    topic: str,
    wanted: Iterable[int] | None,
    start: ReadBound,
    end: ReadBound,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The ranges to read, as of now. The consumer asks for offsets, and joins no group."""
    always = {"allow_auto_create_topics": False, "enable_auto_commit": False}
    with Consumer({**client, **always}) as consumer:
        partitions = _partitions(consumer, topic, wanted)
        return bounds.resolve(consumer, partitions, start, end, fail_on_data_loss=fail_on_data_loss)


def _partitions(consumer: Consumer, topic: object, wanted: object) -> list[TopicPartition]:
    if not isinstance(topic, str):
        raise ConfigError(f"the topic is {topic!r}: a scan reads one topic, by its name")
    there = sorted(consumer.partitions_for(topic))
    if not there:
        hint = did_you_mean(topic, consumer.topics(), show=repr) or "create it, or check the name"
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}: {hint}")
    if wanted is None:
        return there
    numbers = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else []
    if not numbers or not all(isinstance(each, int) for each in numbers):
        raise ConfigError(
            f"partitions is {wanted!r}: it must be a list of numbers, such as [0, 1], or left out",
            setting="partitions",
        )
    chosen = [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]
    for each in chosen:
        if each not in there:
            last = there[-1].partition
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has the partitions 0 to {last}, not {each[1]}"
            )
    return sorted(chosen)


def _inferred(feeding: FeedSettings, ranges: Sequence[OffsetRange], count: int) -> pa.Schema:
    """The columns of JSON values, from about ``count`` records at the starts of some ranges."""
    import pyarrow as pa

    if not ranges:
        return pa.schema([])
    sampled = ranges[:: -(-len(ranges) // _SAMPLED_PARTITIONS)]
    each = -(-count // len(sampled))
    parts = [replace(part, end=min(part.end, part.start + each)) for part in sampled]
    as_bytes = Formats("bytes", "bytes", headers=False, nulls_for_bad=False)
    feed = Feed(replace(feeding, decoder=as_bytes.decoder), parts)
    try:
        found = infer(each for batch in feed for each in batch.column("value").to_pylist())
    finally:
        feed.close()
    if found is None:
        raise ConfigError(
            f"none of the first values of {ranges[0].topic} is a JSON object: give a schema, or read them "
            "with value=string",
            setting="schema",
        )
    return found


class Scan:
    """A range of a topic: an Arrow stream (``__arrow_c_stream__``), with the methods of a RecordBatchReader.

    It holds the bounds, not the records: each ``for``, ``read_all``, ``to_…`` and query reads the range again
    from its start. ``read_next_batch`` steps through one read. Rows of one partition are in the order of
    their offsets; partitions are mixed.
    """

    def __init__(self, ranges: Sequence[OffsetRange], formats: Formats, feeding: FeedSettings) -> None:
        self._feeding = replace(feeding, decoder=formats.decoder)
        self._schema = formats.decoder().schema
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()
        self._stepping: Iterator[pa.RecordBatch] | None = None
        self._is_closed = False
        self.ranges = tuple(ranges)
        """What is read, by partition: ``topic``, ``partition``, ``start`` and ``end``, without empty ones."""

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._is_closed:
            raise ClosedError("the scan is closed: call scan() again")
        return self._read()

    def _read(self) -> Iterator[pa.RecordBatch]:
        feed = Feed(self._feeding, self.ranges)
        self._feeds.add(feed)
        try:
            yield from feed
        finally:
            feed.close()

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch of one read; raises StopIteration at its end."""
        if self._stepping is None:
            self._stepping = iter(self)
        return next(self._stepping)

    def read_all(self) -> pa.Table:
        """All rows as a table."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), self._schema)

    def read_pandas(self, **options: Any) -> pd.DataFrame:
        """As ``to_pandas``: the name that RecordBatchReader has."""
        return self.to_pandas(**options)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; ``options`` are those of ``pyarrow.Table.to_pandas``."""
        require("pandas", "scan")
        return self.read_all().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        found: pl.DataFrame = require("polars", "scan").from_arrow(self.read_all())
        return found

    def to_reader(self) -> pa.RecordBatchReader:
        """One read as a ``pyarrow.RecordBatchReader``, for functions that take nothing else."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self._schema, iter(self))

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """End all reads: their threads and connections. May be repeated."""
        self._is_closed = True
        self._stepping = None
        for feed in list(self._feeds):
            feed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Scan of {listed(self.ranges) or 'nothing'}>"
