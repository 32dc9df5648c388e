"""What a task does with the records it has read: rows to one table, rejected rows to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.spark.load import columns
from millstream.spark.load.shaping import Shaping

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shaped:
    """A batch of records, shaped; None where there is nothing."""

    rows: pa.RecordBatch | None
    rejected: pa.RecordBatch | None


class Shaper:
    """Turns batches of records (the source's columns) into rows. One for each task, used by one thread."""

    def __init__(self, shaping: Shaping) -> None:
        self._shaping = shaping

    @property
    def read_columns(self) -> list[str]:
        """Which columns of the source it needs."""
        return list(columns.RAW if self._shaping.headers else columns.RAW[:-1])

    def shape(self, batch: Any, rejected_from: int) -> Shaped:
        """Rows and rejected rows; those rejected below ``rejected_from`` are kept already, and left out."""
        return Shaped(batch, None)
