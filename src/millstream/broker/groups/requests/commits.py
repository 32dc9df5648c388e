"""Handles OffsetCommit.

A commit is checked against the present state of the group, and answered when its records are durable. Until
then no fetch returns it. Records of one group become durable in the order in which their commits were
accepted, so an earlier commit never overwrites a later one. A commit of an old generation was either accepted
before the new generation began, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from millstream.broker.groups.outcome import Caller, Effects, Parked, answers
from millstream.broker.groups.requests.responses import commit_response
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import CommittedOffset, OffsetRecord
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import GroupTable
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_GROUP_NOT_FOUND_VERSION: Final = 9
_TOPIC_IDS_VERSION: Final = 10
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_TopicOutcome = tuple[OffsetCommitRequestTopic, list[tuple[int, int]]]
"""A topic of the request, and the error of each of its partitions that a commit named."""


def _refusal(request: OffsetCommitRequest, version: int, error: int) -> OffsetCommitResponse:
    return commit_response(
        (topic, [(partition.partition_index, error) for partition in topic.partitions])
        for topic in request.topics
    )


class CommitHandler:
    """Handles OffsetCommit."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    @answers(OFFSET_COMMIT, _refusal)
    def commit(self, request: OffsetCommitRequest, parked: Parked, caller: Caller, effects: Effects) -> None:
        if caller.version >= _TOPIC_IDS_VERSION:
            for topic in request.topics:
                topic.name = self._table.topic_ids.name_of(topic.topic_id) or ""
        outcomes, records = self._sort(request, effects)
        if _names_unknown_only(outcomes):  # then the group does not matter
            effects.reply(parked, commit_response(outcomes))
            return
        group = self._table.groups.get(request.group_id)
        error = self._caller_error(group, request, caller.version)
        if error is not ErrorCode.NONE:
            self._table.counters.commits_refused += 1
            effects.reply(parked, commit_response(_refused(outcomes, error)))
            return
        if group is not None:
            self._keep_session(group, request.member_id, effects)
        if records:
            group = group or self._table.find_or_create(request.group_id)
            self._store(group, records, outcomes, parked, effects)
        else:
            effects.reply(parked, commit_response(outcomes))

    def _sort(
        self, request: OffsetCommitRequest, effects: Effects
    ) -> tuple[list[_TopicOutcome], list[OffsetRecord]]:
        """Return the answer of each partition if all goes well, and the records to store."""
        outcomes: list[_TopicOutcome] = []
        records: list[OffsetRecord] = []
        expires_ms, epoch_ms = self._expires_ms(request, effects), effects.moment.epoch_ms
        for topic in request.topics:
            errors: list[tuple[int, int]] = []
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                metadata = entry.committed_metadata or ""
                error = self._partition_error(partition, metadata)
                errors.append((entry.partition_index, error))
                if not error:
                    offset, leader_epoch = entry.committed_offset, entry.committed_leader_epoch
                    value = CommittedOffset(offset, metadata, leader_epoch, epoch_ms, expires_ms)
                    records.append(OffsetRecord(request.group_id, partition, value))
            outcomes.append((topic, errors))
        return outcomes, records

    def _partition_error(self, partition: TopicPartition, metadata: str) -> int:
        if not partition.topic:  # the request has an id that no topic has
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self._table.partition_exists(partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(metadata) > self._table.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return 0

    def _expires_ms(self, request: OffsetCommitRequest, effects: Effects) -> int | None:
        retention_ms = request.retention_time_ms
        return None if retention_ms < 0 else effects.moment.epoch_ms + retention_ms

    def _caller_error(
        self, group: ClassicGroup | None, request: OffsetCommitRequest, version: int
    ) -> ErrorCode:
        """Return why the caller may not commit: it must be in the current generation, or the group empty.

        Simple consumers and administrators send a generation below zero.
        """
        generation, instance_id = request.generation_id_or_member_epoch, request.group_instance_id
        if group is None:
            if generation < 0:
                return ErrorCode.NONE
            new = version >= _GROUP_NOT_FOUND_VERSION
            return ErrorCode.GROUP_ID_NOT_FOUND if new else ErrorCode.ILLEGAL_GENERATION
        if group.closing:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and group.state is GroupState.EMPTY:
            return ErrorCode.NONE
        error = self._table.caller_error(group, request.member_id, instance_id, generation)
        if error is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
            # It knows this generation but not its assignment yet: the commit is for the generation before.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error

    def _keep_session(self, group: ClassicGroup, member_id: str, effects: Effects) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._table.keep_session(group, member, effects)

    def _store(
        self,
        group: ClassicGroup,
        records: Sequence[OffsetRecord],
        outcomes: list[_TopicOutcome],
        parked: Parked,
        effects: Effects,
    ) -> None:
        def then(error: int, later: Effects) -> None:
            if error == ErrorCode.NONE:
                self._table.counters.offsets_committed += len(records)
            later.reply(parked, commit_response(_with_error(outcomes, error)))

        self._table.write(group, records, effects, then)


def _names_unknown_only(outcomes: list[_TopicOutcome]) -> bool:
    return all(error in _UNKNOWN for _, errors in outcomes for _, error in errors)


def _refused(outcomes: list[_TopicOutcome], error: int) -> Iterable[_TopicOutcome]:
    """Give the error to every partition that exists, also where another one was found."""
    for topic, errors in outcomes:
        yield topic, [(partition, was if was in _UNKNOWN else error) for partition, was in errors]


def _with_error(outcomes: list[_TopicOutcome], error: int) -> Iterable[_TopicOutcome]:
    """Give the error to the partitions that were to be stored."""
    for topic, errors in outcomes:
        yield topic, [(partition, was or error) for partition, was in errors]
