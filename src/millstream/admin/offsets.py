"""Offsets of partitions: where logs begin and end, and what lies at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from millstream.admin.session import AdminSession, Outcome, error_of
from millstream.client.blocking import Deadline
from millstream.client.targets import Node
from millstream.errors import MisuseError, UnsupportedVersionError
from millstream.model import OffsetAndTimestamp, TopicPartition
from millstream.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

OffsetSpec = str | int | datetime
"""``earliest``, ``latest``, ``max_timestamp``, or a time: milliseconds since 1970, or a datetime."""

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_WORDS: Final = {"latest": _LATEST, "earliest": _EARLIEST, "max_timestamp": _MAX_TIMESTAMP}
_MAX_TIMESTAMP_VERSION: Final = 7
_UNCOMMITTED: Final = 0
_ISOLATION: Final = {"read_uncommitted": _UNCOMMITTED, "read_committed": 1}
_CONSUMER: Final = -1
_NOT_FOUND: Final = -1


class OffsetAdmin(AdminSession):
    """The calls about offsets of partitions."""

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec] | Iterable[TopicPartition] | str,
        spec: OffsetSpec = "latest",
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """An offset of each partition: its first (``earliest``), the next to be written (``latest``), that of
        the first record at or after a time, or that of the newest timestamp (``max_timestamp``).

        ``partitions`` is a topic, some partitions, or a mapping that gives each its own spec. None stands
        where no record is that late; the timestamp is -1 where no single record was asked for. With
        ``isolation_level="read_committed"`` a log ends, as for such a consumer, where its first open
        transaction begins.
        """
        isolation = _isolation_of(isolation_level)
        deadline = self._deadline(timeout)
        if isinstance(partitions, str):
            partitions = self._all_partitions([partitions], deadline)
        if not isinstance(partitions, Mapping):
            partitions = dict.fromkeys(partitions, spec)
        wanted = {TopicPartition(*partition): timestamp_of(one) for partition, one in partitions.items()}
        return self._list_offsets(wanted, deadline, isolation)

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], deadline: Deadline, isolation: int = _UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        def ask(
            partitions: list[TopicPartition],
        ) -> Mapping[TopicPartition, Outcome[OffsetAndTimestamp | None]]:
            by_leader, missing = self._leaders(partitions, deadline)
            outcomes: dict[TopicPartition, Outcome[OffsetAndTimestamp | None]] = dict(missing)
            for node_id, group in by_leader.items():
                wanted = {partition: timestamps[partition] for partition in group}
                outcomes.update(self._list_offsets_on(node_id, wanted, deadline, isolation))
            return outcomes

        return self._each(timestamps, deadline, ask)

    def _list_offsets_on(
        self, node_id: int, timestamps: Mapping[TopicPartition, int], deadline: Deadline, isolation: int
    ) -> dict[TopicPartition, Outcome[OffsetAndTimestamp | None]]:
        def build(version: int) -> ListOffsetsRequest:
            if _MAX_TIMESTAMP in timestamps.values() and version < _MAX_TIMESTAMP_VERSION:
                raise UnsupportedVersionError(
                    f"max_timestamp needs ListOffsets version {_MAX_TIMESTAMP_VERSION} (Kafka 3.0 or later), "
                    f"and the broker speaks {version} at most"
                )
            by_topic: dict[str, list[ListOffsetsPartition]] = {}
            for (topic, index), timestamp in timestamps.items():
                part = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                by_topic.setdefault(topic, []).append(part)
            return ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
                timeout_ms=deadline.remaining_ms,
            )

        response = self._calls.call(Node(node_id), ListOffsetsResponse, build, deadline)
        outcomes: dict[TopicPartition, Outcome[OffsetAndTimestamp | None]] = {}
        for topic in response.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code:
                    outcomes[partition] = error_of(result.error_code, f"{partition}")
                elif result.offset == _NOT_FOUND:
                    outcomes[partition] = None
                else:
                    epoch = result.leader_epoch if result.leader_epoch >= 0 else None
                    outcomes[partition] = OffsetAndTimestamp(result.offset, result.timestamp, epoch)
        return outcomes

    def _bounds(
        self, partitions: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Where each log begins and ends."""
        wanted = list(partitions)
        starts = self._list_offsets(dict.fromkeys(wanted, _EARLIEST), deadline)
        ends = self._list_offsets(dict.fromkeys(wanted, _LATEST), deadline)
        return {one: (offset_or(starts[one], 0), offset_or(ends[one], 0)) for one in wanted}


def timestamp_of(spec: OffsetSpec) -> int:
    """The number that stands for a spec in a request."""
    if isinstance(spec, str) and spec in _WORDS:
        return _WORDS[spec]
    if isinstance(spec, datetime):
        return int(spec.timestamp() * 1000)
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 0:
        return spec
    raise MisuseError(
        f"{spec!r} must be earliest, latest, max_timestamp, or a time in milliseconds since 1970"
    )


def _isolation_of(level: str) -> int:
    if level not in _ISOLATION:
        raise MisuseError(f"isolation_level is {level!r}: it is one of {', '.join(_ISOLATION)}")
    return _ISOLATION[level]


def offset_or(found: OffsetAndTimestamp | None, otherwise: int) -> int:
    """The offset that was found, or another one."""
    return otherwise if found is None else found.offset
