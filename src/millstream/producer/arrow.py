"""``send_arrow``: sends the rows of an Arrow table as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MisuseError
from millstream.producer.arrow_columns import COLUMNS, ArrowReader
from millstream.producer.arrow_delivery import ArrowDelivery, ArrowFuture
from millstream.producer.core.batch import RECORD_OVERHEAD
from millstream.producer.core.columns import RecordColumns, encoder, row_numbers
from millstream.producer.intake import Intake
from millstream.wire.records.batch_header import BATCH_OVERHEAD
from millstream.wire.records.encode import MAX_RECORD_OVERHEAD, EncoderKernels

if TYPE_CHECKING:
    import pyarrow

    from millstream.producer.core.accumulator import TopicQueues
    from millstream.wire.records.encode import Longs

_PIECE_ROWS: Final = 1 << 16
"""The most rows that are read at once: enough for large batches, with bounded memory beside the table."""
_PLAIN_ROWS: Final = 1 << 12
"""The same while the compiled encoder is not loaded: few, so that it takes over soon."""


def send_rows(
    intake: Intake, reader: ArrowReader, topic: str, table: pyarrow.RecordBatch | pyarrow.Table
) -> ArrowFuture:
    """Send each row as a record; see ``Producer.send_arrow``."""
    names = table.schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not {"value", "key"} & set(names):
        raise MisuseError(
            f"the columns are {', '.join(names)}: they must be among {', '.join(COLUMNS)}, with value or key"
        )
    outcome = ArrowDelivery(table.num_rows)
    sender = _RowSender(intake, reader, topic, outcome)
    for piece in _pieces(table):
        sender.send(piece)
    return outcome.future


def _pieces(table: Any) -> Iterator[Any]:
    """The rows as record batches of at most ``_PIECE_ROWS``."""
    for batch in table.to_batches() if hasattr(table, "to_batches") else (table,):
        first = 0
        while first < batch.num_rows:
            limit = _PLAIN_ROWS if encoder.ready(batch.nbytes) is None else _PIECE_ROWS
            yield batch.slice(first, limit)
            first += limit


class _RowSender:
    """Sends the pieces of one table."""

    def __init__(self, intake: Intake, reader: ArrowReader, topic: str, outcome: ArrowDelivery) -> None:
        self._intake = intake
        self._reader = reader
        self._name = topic
        self._outcome = outcome

    def send(self, piece: Any) -> None:
        kernels = encoder.kernels
        if kernels is None:
            self._send_row_by_row(piece)
            return
        columns = self._reader.columns(piece)
        sizes = columns.field_sizes
        self._intake.check_size(RECORD_OVERHEAD + int(sizes.max()))
        sizes = sizes + (BATCH_OVERHEAD + MAX_RECORD_OVERHEAD)
        chosen, highest = self._reader.partitions(piece)
        topic = self._intake.topic(self._name, highest, self._intake.deadline())
        for partition, rows in self._grouped(kernels, topic, columns, chosen):
            self._intake.add_rows(topic, partition, columns, rows, sizes, self._outcome)

    def _grouped(
        self, kernels: EncoderKernels, topic: TopicQueues, columns: RecordColumns, chosen: Longs | None
    ) -> Sequence[tuple[int | None, Longs]]:
        """The rows of each partition, in order; all rows under None if all may go to any partition."""
        import numpy as np

        count = len(columns.timestamps)
        if chosen is None:
            chosen = np.full(count, -1, np.int64)
        unchosen = kernels.hash_keys(*columns.keys.arrays, len(topic.queues), chosen)
        if unchosen == count:
            return [(None, row_numbers(count))]
        if unchosen:  # they get a partition before grouping, so that rows keep their order in it
            free = chosen < 0
            chosen[free] = self._intake.spread(topic, columns.field_sizes[free] + RECORD_OVERHEAD)
        # Read only now, as the topic may have grown. The last group is that of rows without a partition.
        ends, order = np.zeros(len(topic.queues) + 1, np.int64), np.empty(count, np.int64)
        kernels.group_rows(chosen, ends, order)
        groups = np.split(order, ends[:-2])
        return [(partition, rows) for partition, rows in enumerate(groups) if len(rows)]

    def _send_row_by_row(self, piece: Any) -> None:
        """Send row by row, while the compiled encoder is not loaded."""
        rows = zip(*self._reader.lists(piece), strict=True)
        for key, value, headers, partition, timestamp in rows:
            record = self._intake.send(self._name, value, key, headers, partition, timestamp)
            record.add_done_callback(self._record_done)

    def _record_done(self, record: Any) -> None:
        """A record that was sent by itself is delivered, or has failed."""
        self._outcome.settle(record.located().partition, 1, record.exception())
