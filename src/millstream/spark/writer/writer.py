"""What Spark calls to write: one object for a batch write, one for each micro-batch of a stream.

Spark pickles these objects into tasks, so they hold options and nothing else. Rows are in the topics when
their task ends: a commit has nothing left to do, and an abort cannot take anything back. So each row is
written at least once, as by Spark's own sink: a task or a micro-batch that runs again writes its rows again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from millstream.errors import ConfigError
from millstream.model import TopicPartition
from millstream.spark.writer.columns import check_columns
from millstream.spark.writer.options import WriterOptions, read_writer_options
from millstream.spark.writer.tasks import write_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("millstream.spark")


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """The records that one task has written, by partition."""

    counts: Mapping[TopicPartition, int]


def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool, of_reads: Iterable[str] = ()
) -> BatchWriter:
    """Check options and columns. Raises ConfigError before any task runs.

    ``of_reads`` are options of the source, which are no mistake here.
    """
    if overwrite:
        raise ConfigError(
            "a topic cannot be overwritten: use mode append, or delete and create the topic first"
        )
    options = read_writer_options(given, of_reads)
    check_columns(schema, options.topic)
    return BatchWriter(options)


def stream_writer(
    given: Mapping[str, str], schema: StructType, *, of_reads: Iterable[str] = ()
) -> StreamWriter:
    """Check options and columns. Raises ConfigError before any task runs.

    The output mode does not matter: complete writes the whole result again with each micro-batch.
    """
    options = read_writer_options(given, of_reads)
    check_columns(schema, options.topic)
    return StreamWriter(options)


class BatchWriter(DataSourceArrowWriter):
    """``df.write.format("millstream")``."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        return TaskWritten(write_batches(self._options.settings, self._options.topic, iterator))

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        _warn(self._options)
        log.info("wrote %s", _total(messages))

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        _warn(self._options)
        log.warning("the write failed; tasks that succeeded wrote %s, which stay there", _total(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("millstream")``."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        return TaskWritten(write_batches(self._options.settings, self._options.topic, iterator))

    def commit(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId == 0:
            _warn(self._options)
        log.info("micro-batch %d wrote %s", batchId, _total(messages))

    def abort(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log.warning(
            "micro-batch %d failed; tasks that succeeded wrote %s, and write them again when it is repeated",
            batchId,
            _total(messages),
        )


def _warn(options: WriterOptions) -> None:
    if options.ignored:
        log.warning("these options have no effect in this write: %s", ", ".join(options.ignored))


def _total(messages: Iterable[WriterCommitMessage | None]) -> str:
    """The records of all tasks by topic; a task that failed has no message."""
    topics: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, TaskWritten):
            for where, count in message.counts.items():
                topics[where.topic] += count
    shown = ", ".join(f"{count} to {topic}" for topic, count in sorted(topics.items())[:10])
    more = f" and {len(topics) - 10} more topics" if len(topics) > 10 else ""
    return f"{topics.total()} records" + (f": {shown}{more}" if topics else "")
