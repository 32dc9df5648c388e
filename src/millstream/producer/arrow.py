"""Rows of Arrow tables as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import MisuseError
from millstream.producer.arrow_columns import COLUMNS, Reader
from millstream.producer.batch import RECORD_OVERHEAD
from millstream.producer.columns import Columns, row_numbers
from millstream.producer.futures import Rows
from millstream.producer.intake import Intake
from millstream.producer.kernels import encoder
from millstream.wire.batches import BATCH_OVERHEAD
from millstream.wire.encode import MAX_RECORD_OVERHEAD, Kernels

if TYPE_CHECKING:
    import pyarrow

    from millstream.producer.accumulator import Topic
    from millstream.wire.encode import Longs

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
        for partition, rows in _grouped(kernels, topic, columns, chosen):
            self._intake.add_rows(topic, partition, columns, rows, sizes, self._outcome)

    def _send_plainly(self, piece: Any) -> None:
        """Row by row, while the compiled loops are not there yet."""
        rows = zip(*self._reader.lists(piece), strict=True)
        for key, value, headers, partition, timestamp in rows:
            record = self._intake.send(self._name, value, key, headers, partition, timestamp)
            record.add_done_callback(self._outcome.record_done)


def _grouped(
    kernels: Kernels, topic: Topic, columns: Columns, chosen: Longs | None
) -> Sequence[tuple[int | None, Longs]]:
    """The rows of each partition, in their order; those that may go to any come last, with None."""
    import numpy as np

    count, partitions = len(columns.timestamps), len(topic.queues)
    if chosen is None:
        chosen = np.full(count, -1, np.int64)
    if kernels.hash_keys(*columns.keys.arrays, partitions, chosen) == count:
        return [(None, row_numbers(count))]
    ends, order = np.zeros(partitions + 1, np.int64), np.empty(count, np.int64)
    kernels.group_rows(chosen, ends, order)
    groups = np.split(order, ends[:-1])
    return [(None if n == partitions else n, rows) for n, rows in enumerate(groups) if len(rows)]
