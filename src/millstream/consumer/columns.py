"""Decoded records as columns: one sequence for each field, instead of one object for each record.

This is where bytes become values, and the only place that knows which decoder does it. What makes records,
Arrow batches or tables of them asks for no more than ``Columns`` promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.model import Header, TimestampType, TopicPartition
from millstream.wire.batches import BatchHeader, RecordData, decode_batch


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one partition in the order of their offsets, which rise but may have gaps.

    The columns are equally long. All records share the timestamp's type and the leader epoch, which is None
    where the log does not know it. Keys and values are bytes or None, or what a deserializer made of them.
    """

    topic: str
    partition: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    headers: Sequence[tuple[Header, ...]]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def rows(self, start: int, stop: int) -> Columns:
        """The rows from ``start`` to before ``stop``, which must lie within the columns."""
        if start == 0 and stop == len(self):
            return self
        return replace(
            self,
            offsets=self.offsets[start:stop],
            timestamps=self.timestamps[start:stop],
            keys=self.keys[start:stop],
            values=self.values[start:stop],
            headers=self.headers[start:stop],
        )

    def with_objects(self, keys: Sequence[Any], values: Sequence[Any]) -> Columns:
        """The same records with their keys and values deserialized; columns of equal length."""
        return replace(self, keys=keys, values=values)


def decode_columns(
    batch: memoryview, header: BatchHeader, partition: TopicPartition, *, max_decompressed_bytes: int
) -> Columns:
    """Decode the records of one batch, whose CRC is not looked at; raises CorruptBatch."""
    records = decode_batch(batch, max_decompressed_bytes=max_decompressed_bytes, verify_crc=False)
    epoch = header.partition_leader_epoch
    offsets, timestamps, keys, values, headers = _transpose(records)
    return Columns(
        topic=partition.topic,
        partition=partition.partition,
        timestamp_type=header.timestamp_type,
        leader_epoch=epoch if epoch >= 0 else None,
        offsets=offsets,
        timestamps=timestamps,
        keys=keys,
        values=values,
        headers=headers,
    )


def _transpose(records: Sequence[RecordData]) -> tuple[Any, Any, Any, Any, Any]:
    if not records:  # compaction may leave a batch without any record, for its producer's sake
        return (), (), (), (), ()
    offsets, timestamps, keys, values, headers = zip(*records, strict=True)
    return offsets, timestamps, keys, values, headers
