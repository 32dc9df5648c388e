"""Offsets of partitions: where logs start and end, and the offset at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from millstream.admin.call import AdminCall, Outcome, by_topic, outcome_of
from millstream.client.targets import Node
from millstream.errors import MisuseError, UnsupportedVersionError
from millstream.model import OffsetAndTimestamp, TopicPartition
from millstream.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

OffsetSpec = str | int | datetime
"""``earliest``, ``latest``, ``max_timestamp``, or a time: milliseconds since 1970, or a datetime."""

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_SPECS: Final = {"latest": _LATEST, "earliest": _EARLIEST, "max_timestamp": _MAX_TIMESTAMP}
_MAX_TIMESTAMP_VERSION: Final = 7
_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_CONSUMER: Final = -1
_NOT_FOUND: Final = -1


def list_offsets(
    call: AdminCall,
    partitions: Mapping[TopicPartition, OffsetSpec] | Iterable[TopicPartition] | str,
    spec: OffsetSpec,
    isolation_level: str = "read_uncommitted",
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The offset of each partition that its spec, or ``spec``, stands for; None if there is none."""
    if isolation_level not in _ISOLATION:
        raise MisuseError(f"isolation_level is {isolation_level!r}: it is one of {', '.join(_ISOLATION)}")
    if isinstance(partitions, str):
        partitions = call.partitions(partitions)
    if not isinstance(partitions, Mapping):
        partitions = dict.fromkeys(partitions, spec)
    timestamps = {TopicPartition(*partition): _timestamp_of(one) for partition, one in partitions.items()}

    def ask(
        node_id: int, led: list[TopicPartition]
    ) -> Mapping[TopicPartition, Outcome[OffsetAndTimestamp | None]]:
        wanted = {partition: timestamps[partition] for partition in led}
        response = call.send(
            Node(node_id),
            ListOffsetsResponse,
            lambda version: _request(
                wanted, _ISOLATION[isolation_level], version, call.deadline.remaining_ms
            ),
        )
        return {
            (partition := TopicPartition(topic.name, result.partition_index)): outcome_of(
                _found(result), result.error_code, f"{partition}"
            )
            for topic in response.topics
            for result in topic.partitions
        }

    return call.each_by_leader(timestamps, ask)


def log_bounds(
    call: AdminCall, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """The start and the end of each log."""
    wanted = list(partitions)
    starts, ends = (list_offsets(call, wanted, spec) for spec in ("earliest", "latest"))
    return {one: (offset_or(starts[one], 0), offset_or(ends[one], 0)) for one in wanted}


def offset_or(found: OffsetAndTimestamp | None, otherwise: int) -> int:
    """The offset that was found, or another one."""
    return otherwise if found is None else found.offset


def _request(
    timestamps: Mapping[TopicPartition, int], isolation: int, version: int, timeout_ms: int
) -> ListOffsetsRequest:
    if _MAX_TIMESTAMP in timestamps.values() and version < _MAX_TIMESTAMP_VERSION:
        raise UnsupportedVersionError(
            f"max_timestamp needs ListOffsets version {_MAX_TIMESTAMP_VERSION} (Kafka 3.0 or later), "
            f"and the broker speaks {version} at most"
        )
    grouped = by_topic(
        (one, ListOffsetsPartition(partition_index=one.partition, timestamp=timestamp))
        for one, timestamp in timestamps.items()
    )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in grouped.items()],
        timeout_ms=timeout_ms,
    )


def _found(result: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None:
    if result.offset == _NOT_FOUND:
        return None
    epoch = result.leader_epoch if result.leader_epoch >= 0 else None
    return OffsetAndTimestamp(result.offset, result.timestamp, epoch)


def _timestamp_of(spec: OffsetSpec) -> int:
    """The number that stands for a spec in a request."""
    if isinstance(spec, str) and spec in _SPECS:
        return _SPECS[spec]
    if isinstance(spec, datetime):
        return int(spec.timestamp() * 1000)
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 0:
        return spec
    raise MisuseError(
        f"{spec!r} must be earliest, latest, max_timestamp, or a time in milliseconds since 1970"
    )
