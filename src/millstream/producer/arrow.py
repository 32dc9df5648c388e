"""Rows of Arrow tables as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MisuseError
from millstream.producer.arrow_columns import COLUMNS, Reader
from millstream.producer.core.batch import RECORD_OVERHEAD
from millstream.producer.core.columns import Columns, row_numbers
from millstream.producer.core.encoder import encoder
from millstream.producer.futures import Rows
from millstream.producer.intake import Intake
from millstream.wire.records.batches import BATCH_OVERHEAD
from millstream.wire.records.encode import MAX_RECORD_OVERHEAD, Kernels

if TYPE_CHECKING:
    import pyarrow

    from millstream.producer.core.accumulator import Topic
    from millstream.wire.records.encode import Longs

_PIECE_ROWS: Final = 1 << 16
"""So many rows are taken up at once: enough for large batches, and a bounded memory besides the table."""
_PLAIN_ROWS: Final = 1 << 12
"""While the compiled loops are not there: so few that they take over soon."""


def send_rows(
    intake: Intake, reader: Reader, topic: str, table: pyarrow.RecordBatch | pyarrow.Table
) -> Future[int]:
    """Send each row as a record; see ``Producer.send_arrow``."""
    names = table.schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not {"value", "key"} & set(names):
        raise MisuseError(
            f"the columns are {', '.join(names)}: they must be among {', '.join(COLUMNS)}, with value or key"
        )
    outcome = Rows(table.num_rows)
    sender = _RowSender(intake, reader, topic, outcome)
    for piece in _pieces(table):
        sender.send(piece)
    return outcome.future


def _pieces(table: Any) -> Iterator[Any]:
    """The rows as record batches that are not too long."""
    for batch in table.to_batches() if hasattr(table, "to_batches") else (table,):
        first = 0
        while first < batch.num_rows:
            limit = _PLAIN_ROWS if encoder.ready(batch.nbytes) is None else _PIECE_ROWS
            yield batch.slice(first, limit)
            first += limit


class _RowSender:
    """Sends the pieces of one table."""

    def __init__(self, intake: Intake, reader: Reader, topic: str, outcome: Rows) -> None:
        self._intake = intake
        self._reader = reader
        self._name = topic
        self._outcome = outcome

    def send(self, piece: Any) -> None:
        kernels = encoder.kernels
        if kernels is None:
            self._send_plainly(piece)
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
        self, kernels: Kernels, topic: Topic, columns: Columns, chosen: Longs | None
    ) -> Sequence[tuple[int | None, Longs]]:
        """The rows of each partition, in their order; where all may go to any, all of them with None."""
        import numpy as np

        count = len(columns.timestamps)
        if chosen is None:
            chosen = np.full(count, -1, np.int64)
        unchosen = kernels.hash_keys(*columns.keys.arrays, len(topic.queues), chosen)
        if unchosen == count:
            return [(None, row_numbers(count))]
        if unchosen:  # they get a partition before they are grouped: there they stay between their neighbours
            free = chosen < 0
            chosen[free] = self._intake.spread(topic, columns.field_sizes[free] + RECORD_OVERHEAD)
        # Looked at only now, as the topic may have grown meanwhile; one place more for rows without any.
        ends, order = np.zeros(len(topic.queues) + 1, np.int64), np.empty(count, np.int64)
        kernels.group_rows(chosen, ends, order)
        groups = np.split(order, ends[:-2])
        return [(partition, rows) for partition, rows in enumerate(groups) if len(rows)]

    def _send_plainly(self, piece: Any) -> None:
        """Row by row, while the compiled loops are not there yet."""
        rows = zip(*self._reader.lists(piece), strict=True)
        for key, value, headers, partition, timestamp in rows:
            record = self._intake.send(self._name, value, key, headers, partition, timestamp)
            record.add_done_callback(self._outcome.record_done)
