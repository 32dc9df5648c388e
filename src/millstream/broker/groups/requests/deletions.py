"""Removes offsets and groups: OffsetDelete, DeleteGroups, deleted topics and expiry.

Both durable offsets and those that are being written are removed: the log keeps the order of records, so a
tombstone that is written now also covers a commit that was accepted before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import (
    CommittedOffset,
    GenerationRecord,
    GroupRecord,
    OffsetRecord,
)
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import RETENTION_TIMER, GroupTable, session_timer
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_admin import (
    DELETE_GROUPS,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from millstream.wire.messages.group_offsets import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class DeletionHandler:
    """Handles OffsetDelete and DeleteGroups, and deletes expired offsets and groups."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    # ---- OffsetDelete ----

    @answers(OFFSET_DELETE, lambda _, __, error: OffsetDeleteResponse(error_code=error, topics=[]))
    def delete_offsets(
        self, request: OffsetDeleteRequest, parked: Parked, caller: Caller, effects: Effects
    ) -> None:
        group = self._table.groups.get(request.group_id)
        error = _offset_delete_refusal(group)
        if group is None or error is not ErrorCode.NONE:
            effects.reply(parked, OffsetDeleteResponse(error_code=error, topics=[]))
            return
        topics, partitions = self._sort_deletions(group, request)
        if not partitions:
            effects.reply(parked, _deleted(topics))
            return

        def then(error: int, later: Effects) -> None:
            if error == ErrorCode.NONE:
                self._table.counters.offsets_deleted += len(partitions)
                later.reply(parked, _deleted(topics))
            else:
                later.reply(parked, OffsetDeleteResponse(error_code=error, topics=[]))

        self._table.write(group, _tombstones(group, partitions), effects, then)

    def _sort_deletions(
        self, group: ClassicGroup, request: OffsetDeleteRequest
    ) -> tuple[list[tuple[str, list[tuple[int, int]]]], list[TopicPartition]]:
        """Return the answer of each partition, and the partitions that have an offset to delete."""
        present = self._present(group)
        topics, partitions = [], []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            errors = []
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                error = self._deletion_error(partition, subscribed)
                errors.append((entry.partition_index, int(error)))
                if error is ErrorCode.NONE and partition in present:
                    partitions.append(partition)
            topics.append((topic.name, errors))
        return topics, partitions

    def _deletion_error(self, partition: TopicPartition, subscribed: bool) -> ErrorCode:
        if not self._table.partition_exists(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE

    # ---- DeleteGroups ----

    @answers(
        DELETE_GROUPS,
        lambda request, _, error: _deleted_groups([(name, error) for name in request.groups_names]),
    )
    def delete_groups(
        self, request: DeleteGroupsRequest, parked: Parked, caller: Caller, effects: Effects
    ) -> None:
        errors: list[tuple[str, int]] = []
        closing: list[ClassicGroup] = []
        for name in request.groups_names:
            group = self._table.groups.get(name)
            error = _group_delete_refusal(group)
            errors.append((name, error))
            if group is not None and error is ErrorCode.NONE:
                self._close(group, effects)
                closing.append(group)
        if not closing:
            effects.reply(parked, _deleted_groups(errors))
            return

        def then(error: int, later: Effects) -> None:
            later.reply(parked, _deleted_groups([(name, was or error) for name, was in errors]))

        effects.when_written(then)  # one write covers all these groups

    def _close(self, group: ClassicGroup, effects: Effects) -> None:
        """Write the tombstones of a group. Until they are durable, no member can join."""
        group.closing = True
        for member_id in group.pending:
            self._table.timers.cancel(session_timer(group, member_id))
        group.pending.clear()

        def then(error: int, later: Effects) -> None:
            group.closing = False
            if error == ErrorCode.NONE and group.state is not GroupState.DEAD:
                self._table.counters.groups_deleted += 1
                self._table.remove(group, later)

        records: list[GroupRecord] = list(_tombstones(group, self._present(group)))
        records.append(GenerationRecord(group.group_id, None))
        self._table.write(group, records, effects, then)

    # ---- deleted topics ----

    def topic_deleted(self, topic: str, effects: Effects) -> None:
        """Remove every group's offsets for a topic that is gone."""
        for group in list(self._table.groups.values()):
            partitions = [partition for partition in self._present(group) if partition.topic == topic]
            if partitions:
                self._remove(group, partitions, effects)

    # ---- expiry ----

    def expire(self, effects: Effects) -> None:
        """Delete offsets past their retention, and groups with neither members nor offsets."""
        settings = self._table.settings
        deadline_ms = effects.moment.now_ms + settings.offsets_retention_check_interval_ms
        self._table.timers.set(RETENTION_TIMER, deadline_ms)
        for group in list(self._table.groups.values()):
            if not group.closing:
                self._expire_group(group, effects)

    def _expire_group(self, group: ClassicGroup, effects: Effects) -> None:
        offsets = self._table.store.offsets_of(group.group_id)
        expired = [
            partition
            for partition, committed in offsets.items()
            if self._is_expired(group, partition, committed, effects.moment.epoch_ms)
        ]
        if group.is_idle and len(expired) == len(offsets):
            self._close(group, effects)
        elif expired:
            self._remove(group, expired, effects)
        if expired:
            effects.when_written(partial(self._count_expired, len(expired)))

    def _count_expired(self, count: int, error: int, effects: Effects) -> None:
        if error == ErrorCode.NONE:
            self._table.counters.offsets_expired += count

    def _is_expired(
        self, group: ClassicGroup, partition: TopicPartition, committed: CommittedOffset, epoch_ms: int
    ) -> bool:
        if partition in group.uncommitted or group.is_subscribed_to(partition.topic):
            return False
        since_ms = _unused_since_ms(group, committed)
        if since_ms is None:
            return False
        if committed.expires_ms is not None:
            return epoch_ms >= committed.expires_ms
        return epoch_ms - since_ms >= self._table.settings.offsets_retention_minutes * 60_000

    # ---- shared ----

    def _present(self, group: ClassicGroup) -> list[TopicPartition]:
        """Return the partitions with an offset that is durable or being written."""
        return sorted({*self._table.store.offsets_of(group.group_id), *group.uncommitted})

    def _remove(self, group: ClassicGroup, partitions: Iterable[TopicPartition], effects: Effects) -> None:
        # A failure needs no answer: the next check finds the same offsets again.
        records = _tombstones(group, sorted(partitions))
        self._table.write(group, records, effects, lambda error, later: None)


def _unused_since_ms(group: ClassicGroup, committed: CommittedOffset) -> int | None:
    """Return since when (epoch) an offset is unused; None while it must be kept (KIP-211)."""
    if group.protocol_type is None:  # a simple consumer: only its commits show activity
        return committed.committed_ms
    if group.state is GroupState.EMPTY:
        return committed.committed_ms if group.state_since_ms is None else group.state_since_ms
    if group.state is GroupState.STABLE and group.knows_topics:  # a topic that members no longer subscribe to
        return committed.committed_ms
    return None


def _offset_delete_refusal(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.closing:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP  # the topics of its members are unknown
    return ErrorCode.NONE


def _group_delete_refusal(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.closing:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _tombstones(group: ClassicGroup, partitions: Iterable[TopicPartition]) -> list[OffsetRecord]:
    return [OffsetRecord(group.group_id, partition, None) for partition in partitions]


def _deleted(topics: list[tuple[str, list[tuple[int, int]]]]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=error)
                    for index, error in errors
                ],
            )
            for topic, errors in topics
        ],
    )


def _deleted_groups(errors: list[tuple[str, int]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=error) for name, error in errors]
    )
