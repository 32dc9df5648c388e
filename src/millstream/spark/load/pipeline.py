"""From ranges of offsets to rows in a sink's hands, by Spark tasks; nothing here commits anything.

Two routes give the same tables. The fused one (``fused``) does everything inside one Python task and is
taken whenever the task can: raw landing, and parsing with checks that are simple comparisons. The other
(``frames``) goes through a DataFrame, for checks that only Spark understands and for SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.spark.load import columns, fused, jobs
from millstream.spark.load.fused import Piece as Piece
from millstream.spark.load.fused import PieceResult as PieceResult
from millstream.spark.load.shaping import Shaping as Shaping
from millstream.spark.sinks.base import Tables, TaskWriter


class Pipeline:
    """How a load turns pieces into rows. Holds no connection and no session; may be used for many cycles."""

    def __init__(self, shaping: Shaping) -> None:
        """Use ``of``, which checks what it is given."""
        self.shaping = shaping

    @classmethod
    def of(cls, shaping: Shaping) -> Pipeline:
        """Check all that can be checked without Spark; raises ConfigError with the column, check or SQL."""
        return cls(shaping)

    @property
    def needs_spark_for_tables(self) -> bool:
        """Whether only Spark can say what the tables look like."""
        return self.shaping.sql is not None

    @property
    def aggregates(self) -> bool:
        """Whether rows stand for whole ranges, as a query made them; known once ``tables`` was called.

        Such a row is stamped with the first offset of its range: a rewind must start at one.
        """
        return False

    def tables(self, spark: Any) -> Tables:
        """The shape of what it writes. Raises ConfigError where Spark refuses a check or the SQL.

        ``spark`` may be None unless ``needs_spark_for_tables``.
        """
        return Tables(
            rows=columns.raw_schema(headers=self.shaping.headers),
            rejected=columns.rejected_schema() if self.shaping.can_reject else None,
            partition_by=tuple(self.shaping.partition_by),
            add_columns=self.shaping.add_columns,
        )

    def run(
        self,
        spark: Any,
        settings: Mapping[str, object],
        pieces: Sequence[Piece],
        writer: TaskWriter,
        tag: str,
    ) -> list[PieceResult]:
        """Shape and write all pieces, one task each, and wait for them.

        Raises TaskFailedError when a task failed for good, JobInterruptedError after ``interrupt`` with the
        same ``tag``. Whatever was written then stays invisible.
        """
        with jobs.tagged(spark, tag):
            return fused.run(spark, fused.FusedTask(dict(settings), tuple(pieces), writer, self.shaping))

    @staticmethod
    def interrupt(spark: Any, tag: str) -> None:
        """End the run of this tag, from another thread; its ``run`` raises JobInterruptedError."""
        jobs.interrupt(spark, tag)
