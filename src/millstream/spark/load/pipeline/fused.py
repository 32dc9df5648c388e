"""The fused route: one Python task fetches, parses and writes, and returns only what it wrote.

No row passes through the JVM. A task is a pure function of its pieces: run twice, it writes the same rows,
which stay invisible until the driver commits one of the two results.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.spark.load.decisions.cycles import shares_of
from millstream.spark.load.pipeline.cluster import is_connect, slots_of
from millstream.spark.load.pipeline.jobs import TaskFailedError
from millstream.spark.load.pipeline.partitioning import Partitioning
from millstream.spark.load.pipeline.work import Shaper, accepted, rejected_rows
from millstream.spark.load.settings import Shaping
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.reading.memory import keep_freed
from millstream.spark.reading.reader import read_range
from millstream.spark.sinks.base import TaskOutput, TaskWriter, Written

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("millstream.spark.load")

RESULT_DDL: Final = "piece INT, records LONG, written BINARY"


@dataclass(frozen=True, slots=True)
class PieceResult:
    """What a task wrote for one piece, or for several."""

    piece: int | None
    """Its index in the list of pieces; None if several pieces were written together."""
    written: Written
    records: int
    """Records read."""


@dataclass(frozen=True, slots=True)
class FusedTask:
    """What a task needs; pickled into it."""

    settings: Mapping[str, object]
    pieces: Sequence[OffsetRange]
    writer: TaskWriter
    shaping: Shaping

    def run(self, share: Sequence[int]) -> PieceResult:
        """Load these pieces, at least one, one after the other into one output.

        Raises TaskFailedError with the range that failed, after cleaning up.
        """
        keep_freed()
        output: TaskOutput | None = None
        records, index = 0, share[0]
        try:
            output = self.writer.open()
            shaper = Shaper(self.shaping)
            partitioning = Partitioning(self.shaping.partition_by, shaper.schema)
            for index in share:
                records += self._copy(self.pieces[index], shaper, partitioning, output)
            return PieceResult(index if len(share) == 1 else None, output.finish(), records)
        except BaseException as error:
            if output is not None:
                output.abort()
            if isinstance(error, Exception):
                TaskFailedError.fail(self.pieces[index], error)
            raise

    def _copy(
        self, piece: OffsetRange, shaper: Shaper, partitioning: Partitioning, output: TaskOutput
    ) -> int:
        records = 0
        for batch in read_range(
            self.settings, piece, headers=self.shaping.headers, columns=shaper.read_columns
        ):
            shaped = shaper.shape(batch)
            if self.shaping.can_reject:
                shaped = accepted(shaped, self.writer, batch.num_rows)
            if shaped.rows.num_rows:
                output.write_rows(partitioning.add(shaped.rows))
            rejected = rejected_rows(batch, shaped.bad, shaped.reasons)
            if rejected is not None:
                output.write_rejected(rejected)
            records += batch.num_rows
        return records


def run(spark: Any, task: FusedTask) -> list[PieceResult]:
    """Distribute the pieces over tasks, and wait for all of them."""
    shares = shares_of(task.pieces, slots_of(spark))
    if not shares:
        return []
    found = None if is_connect(spark) else _run_plainly(spark, task, shares)
    return _run_as_query(spark, task, shares) if found is None else found


def _run_plainly(spark: Any, task: FusedTask, shares: Sequence[Sequence[int]]) -> list[PieceResult] | None:
    """Run as an RDD job: Spark plans no query and generates no code, which costs more than all the rest.

    None if Spark cannot: its directory for temporary files was deleted, or is full.
    """
    try:
        numbers = spark.sparkContext.parallelize(range(len(shares)), len(shares))
    except OSError as error:
        log.warning("the tasks run as a query, as Spark cannot write the files of an RDD job: %s", error)
        return None
    # Pickled here, as the serializer of the user's context may not be able to.
    found = numbers.map(lambda number: pickle.dumps(task.run(shares[number]))).collect()
    return _in_order([pickle.loads(result) for result in found])


def _run_as_query(spark: Any, task: FusedTask, shares: Sequence[Sequence[int]]) -> list[PieceResult]:
    def work(number: int) -> Iterator[pa.RecordBatch]:
        yield answer(task.run(shares[number]))

    # As many partitions as numbers: each task gets exactly one.
    numbers = spark.range(0, len(shares), 1, len(shares))
    return results(numbers.mapInArrow(for_each_number(work), RESULT_DDL).collect())


def results(found: Sequence[Any]) -> list[PieceResult]:
    """The results that tasks returned, in the order of the pieces."""
    return _in_order(
        [
            PieceResult(None if row.piece < 0 else row.piece, pickle.loads(row.written), row.records)
            for row in found
        ]
    )


def _in_order(found: Sequence[PieceResult]) -> list[PieceResult]:
    """Results in the order of the pieces, those of several pieces first."""
    return sorted(found, key=lambda result: -1 if result.piece is None else result.piece)


def answer(result: PieceResult) -> pa.RecordBatch:
    """A result as a batch that a task returns to Spark."""
    import pyarrow as pa

    return pa.RecordBatch.from_pydict(
        {
            "piece": pa.array([-1 if result.piece is None else result.piece], pa.int32()),
            "records": pa.array([result.records], pa.int64()),
            "written": pa.array([pickle.dumps(result.written)], pa.binary()),
        }
    )


Stage = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""What Spark runs over the batches of a partition."""


def for_each_number(work: Callable[[int], Iterator[pa.RecordBatch]]) -> Stage:
    """Do ``work`` for each number of a DataFrame of numbers."""

    def stage(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return stage
