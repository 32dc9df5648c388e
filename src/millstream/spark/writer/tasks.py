"""Writes the rows of one task: Arrow record batches in, counts of written records out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.config import ProducerConfig
from millstream.errors import MillstreamError, MisuseError
from millstream.model import TopicPartition
from millstream.producer import ArrowFuture, Producer
from millstream.producer.compiled_encoder import background
from millstream.spark.writer.columns import RECORD, TOPIC
from millstream.spark.writer.pool import borrowed_producer

if TYPE_CHECKING:
    import pyarrow as pa

_DEFAULTS: Final = {"batch.size": 1 << 18, "linger.ms": 100}
"""A task has many rows, and flushes at its end: fuller batches delay nothing."""
_WORTH_COMPILING: Final = 1 << 17
"""From this number of bytes in the first batch on, the compiled encoder is worth waiting for."""
_SHOWN: Final = 8
"""An error names at most this number of partitions."""
_SETTINGS: Final = re.compile(rf"\b({'|'.join(sorted(ProducerConfig.names(), key=len, reverse=True))})\b")


class RowsNotWrittenError(MillstreamError):
    """Rows of a task were not written."""


@dataclass(slots=True)
class WriteTally:
    """What became of the rows of a task."""

    written: Counter[TopicPartition] = field(default_factory=Counter)
    failed: Counter[TopicPartition] = field(default_factory=Counter)
    errors: dict[TopicPartition, BaseException] = field(default_factory=dict)

    def add(self, topic: str, future: ArrowFuture) -> None:
        """Count the rows of a ``send_arrow`` that is done."""
        for partition, count in future.written.items():
            self.written[TopicPartition(topic, partition)] += count
        for partition, (count, error) in future.failed.items():
            self.failed[TopicPartition(topic, partition)] += count
            self.errors.setdefault(TopicPartition(topic, partition), error)


def write_batches(
    settings: Mapping[str, str], topic: str | None, batches: Iterable[pa.RecordBatch]
) -> Counter[TopicPartition]:
    """Send each row to ``topic``, or to the topic in its column, and wait until all are written.

    Returns the number of records by partition. Raises RowsNotWrittenError with what was written and what was
    not. A task that runs again writes all of its rows again.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Counter()
    with borrowed_producer({**_DEFAULTS, **settings}) as producer:
        if first.nbytes >= _WORTH_COMPILING:
            background.wait()
        return _TaskWriter(producer, topic).write(first, filled)


class _TaskWriter:
    """Sends the batches of one task, and keeps the books."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._tally = WriteTally()
        self._pending: list[tuple[str, ArrowFuture]] = []
        self._taken = 0

    def write(self, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Counter[TopicPartition]:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            self._taken += batch.num_rows
            try:
                for topic, rows in by_topic(batch, self._topic):
                    self._pending.append((topic, self._producer.send_arrow(topic, rows)))
            except MillstreamError as error:
                raise self._failure(error) from error
            self._collect()
            if self._tally.failed:
                break  # Spark repeats the whole task: sending the rest now would only add duplicates
            batch = next(rest, None)
        self._producer.flush()
        self._collect()
        if self._tally.failed:
            raise self._failure(None)
        return self._tally.written

    def _collect(self) -> None:
        """Count what is done."""
        pending = []
        for topic, future in self._pending:
            if future.done():
                self._tally.add(topic, future)
            else:
                pending.append((topic, future))
        self._pending = pending

    def _failure(self, refused: MillstreamError | None) -> RowsNotWrittenError:
        self._producer.flush()
        self._collect()
        return RowsNotWrittenError(describe(self._tally, self._taken, refused))


def by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in their order, with the columns that a record is made of."""
    import numpy as np
    import pyarrow as pa

    rows = batch.select([name for name in RECORD if name in batch.schema.names])
    if topic is not None:
        yield topic, rows
        return
    names = batch.column(TOPIC)
    if names.null_count:
        raise MisuseError(
            f"{names.null_count} of {len(names)} rows have null in the column topic: fill it, or set the "
            "option topic"
        )
    encoded: Any = names.dictionary_encode()
    found: list[str] = encoded.dictionary.to_pylist()
    if len(found) == 1:
        yield found[0], rows
        return
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    sorted_rows = pa.Table.from_batches([rows]).take(pa.array(order)).combine_chunks()
    ends = np.bincount(codes, minlength=len(found)).cumsum().tolist()
    for name, start, end in zip(found, [0, *ends[:-1]], ends, strict=True):
        yield name, sorted_rows.slice(start, end - start)


# -- the error


def describe(tally: WriteTally, taken: int, refused: BaseException | None) -> str:
    """One sentence each for the cause, what was written, and what to do."""
    parts = [f"{where}: {tally.errors[where]} ({tally.failed[where]} rows)" for where in sorted(tally.failed)]
    causes = [str(refused)] if refused is not None else []
    causes += parts[:_SHOWN]
    if len(parts) > _SHOWN:
        causes.append(f"{len(parts) - _SHOWN} more partitions")
    cause = _as_options("; ".join(causes)).rstrip(".")
    return (
        f"{cause}. Of the first {taken} rows of this task, {tally.written.total()} were written"
        f"{_where(tally.written)}. Mend the cause and run it again; they are then written once more."
    )


def _where(counts: Counter[TopicPartition]) -> str:
    if not counts:
        return ""
    shown = [f"{where}: {counts[where]}" for where in sorted(counts)[:_SHOWN]]
    more = f", and {len(counts) - _SHOWN} more partitions" if len(counts) > _SHOWN else ""
    return f" ({', '.join(shown)}{more})"


def _as_options(text: str) -> str:
    """Settings under the names that a writer's options have."""
    return _SETTINGS.sub(lambda found: "kafka." + found[0].replace("_", "."), text)
