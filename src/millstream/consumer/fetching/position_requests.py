"""The requests that give a partition a good position: resets, and validations after a leader change.

Both group their partitions by leader, keep at most one request per partition in flight, and treat answers,
missing answers and lost requests alike. What differs is what they ask and how they settle an answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.client.targets import Node
from millstream.consumer.fetching.context import FetchContext, partition_error
from millstream.consumer.fetching.events import LogTruncated, PositionReset
from millstream.consumer.fetching.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetQuery,
    ask_offsets,
    read_offsets,
)
from millstream.consumer.fetching.partition_state import (
    FetchPhase,
    FetchPosition,
    PartitionState,
    ResetStrategy,
)
from millstream.consumer.sends import Send
from millstream.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    LogTruncationError,
    UnknownServerError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.wire.records.primitives import INT64_MAX

AnswerT = TypeVar("AnswerT", ListOffsetsPartitionResponse, EpochEndOffset)

_CONSUMER_REPLICA_ID = -1
_PATIENCE = 5
"""How often metadata is refreshed while it is older than a position. Then the leader that it names is asked
anyway: no leader may ever reach that epoch, as in a cluster restored from an older copy."""


class PositionRequests(ABC, Generic[AnswerT]):
    """Requests to leaders about the partitions of one phase."""

    phase: FetchPhase

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._in_flight: dict[int, dict[TopicPartition, int]] = {}

    def poll(self, due: Sequence[PartitionState], now_ms: int) -> list[Send]:
        """Ask about those partitions that are in this phase and may ask now."""
        sends = []
        for node_id, states in self._context.by_leader(due, now_ms).items():
            token = self._context.next_token()
            self._in_flight[token] = {state.partition: state.asked(now_ms) for state in states}
            sends.append(self._ask(token, node_id, states, now_ms))
        return sends

    def owns(self, token: int) -> bool:
        return token in self._in_flight

    def receive(self, token: int, response: Any, now_ms: int) -> None:
        """Settle each partition that the response answers; the others are asked about again."""
        asked = self._in_flight.pop(token)
        for partition, answer in self._answers(response):
            state = self._settle_asked(partition, asked.pop(partition, None))
            if state is None:
                continue
            if answer.error_code != ErrorCode.NONE:
                self._context.retry_or_report(state, partition_error(answer.error_code, partition), now_ms)
            else:
                self._settle(state, answer, now_ms)
        for partition, generation in asked.items():
            if state := self._settle_asked(partition, generation):
                self._context.retry_later(state, UnknownServerError(f"{partition} was not answered"), now_ms)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        for partition, generation in self._in_flight.pop(token).items():
            if state := self._settle_asked(partition, generation):
                self._settle_failure(state, error, now_ms)

    def _settle_asked(self, partition: TopicPartition, generation: int | None) -> PartitionState | None:
        """The state that waits for this answer, now waiting no more; None when the answer is stale."""
        if generation is None:
            return None
        state = self._context.positions.current(partition, generation)
        if state is not None:
            assert state.phase is self.phase
            state.answered()
        return state

    def _settle_failure(self, state: PartitionState, error: Exception, now_ms: int) -> None:
        self._context.retry_or_report(state, error, now_ms)

    @abstractmethod
    def _ask(self, token: int, node_id: int, states: Sequence[PartitionState], now_ms: int) -> Send: ...

    @abstractmethod
    def _answers(self, response: Any) -> Iterator[tuple[TopicPartition, AnswerT]]: ...

    @abstractmethod
    def _settle(self, state: PartitionState, answer: AnswerT, now_ms: int) -> None: ...


class Resets(PositionRequests[ListOffsetsPartitionResponse]):
    """Finds where a partition begins or ends, or the offset of a time, and sets the position there."""

    phase = FetchPhase.AWAITING_RESET

    def __init__(self, context: FetchContext, epoch_at_zero_ms: int) -> None:
        super().__init__(context)
        self._epoch_at_zero_ms = epoch_at_zero_ms

    def recreated(self, state: PartitionState) -> None:
        """The topic is another one under the same name: start over, or leave it to the user."""
        if self._context.reset_strategy is None:
            state.reset(None)
        else:
            self._context.reset_or_report(state, InconsistentTopicIdError(str(state.partition)))

    def poll(self, due: Sequence[PartitionState], now_ms: int) -> list[Send]:
        for state in due:
            if state.strategy is None:
                state.fail(InconsistentTopicIdError(str(state.partition)))
        return super().poll([state for state in due if state.strategy is not None], now_ms)

    def _ask(self, token: int, node_id: int, states: Sequence[PartitionState], now_ms: int) -> Send:
        questions = {
            state.partition: OffsetQuery(
                self._timestamp(state, now_ms), state.leader.epoch if state.leader else None
            )
            for state in states
        }
        return ask_offsets(token, node_id, questions, self._context.config)

    def _timestamp(self, state: PartitionState, now_ms: int) -> int:
        if state.strategy is ResetStrategy.EARLIEST:
            return EARLIEST_TIMESTAMP
        if state.strategy is ResetStrategy.LATEST:
            return LATEST_TIMESTAMP
        return max(
            0, self._epoch_at_zero_ms + now_ms - (self._context.config.auto_offset_reset_duration_ms or 0)
        )

    def _answers(self, response: Any) -> Iterator[tuple[TopicPartition, ListOffsetsPartitionResponse]]:
        return read_offsets(response)

    def _settle(self, state: PartitionState, answer: ListOffsetsPartitionResponse, now_ms: int) -> None:
        if 0 <= answer.offset <= INT64_MAX:
            # Without an epoch: the leader has just named this offset, so there is nothing to validate.
            state.jump(FetchPosition(answer.offset), validate=False)
            self._context.tell(PositionReset(state.partition, answer.offset))
        elif state.strategy is ResetStrategy.BY_DURATION:  # no record is that young
            state.reset(ResetStrategy.LATEST)
        else:
            self._context.retry_later(
                state, UnknownServerError(f"{state.partition}: no offset was named"), now_ms
            )


class Validations(PositionRequests[EpochEndOffset]):
    """Asks a new leader whether its log still holds what was read under an older one (KIP-320)."""

    phase = FetchPhase.VALIDATING

    def poll(self, due: Sequence[PartitionState], now_ms: int) -> list[Send]:
        """A former leader does not know later epochs: its response would cost a good position."""
        ready = []
        for state in due:
            if state.failures < _PATIENCE and _has_outdated_leader(state):
                error = partition_error(ErrorCode.UNKNOWN_LEADER_EPOCH, state.partition)
                self._context.retry_or_report(state, error, now_ms)
            else:
                ready.append(state)
        return super().poll(ready, now_ms)

    def _ask(self, token: int, node_id: int, states: Sequence[PartitionState], now_ms: int) -> Send:
        topics: defaultdict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for state in states:
            assert state.leader is not None and state.leader.epoch is not None
            assert state.position is not None and state.position.leader_epoch is not None
            topics[state.partition.topic].append(
                OffsetForLeaderPartition(
                    partition=state.partition.partition,
                    current_leader_epoch=state.leader.epoch,
                    leader_epoch=state.position.leader_epoch,
                )
            )
        timeout_ms = self._context.config.request_timeout_ms
        build = partial(_build_validation, dict(topics))
        return Send(token, Node(node_id), build, OffsetForLeaderEpochRequest, timeout_ms)

    def _answers(self, response: Any) -> Iterator[tuple[TopicPartition, EpochEndOffset]]:
        for topic in response.topics:
            for answer in topic.partitions:
                yield TopicPartition(topic.topic, answer.partition), answer

    def _settle(self, state: PartitionState, answer: EpochEndOffset, now_ms: int) -> None:
        truncate_if_diverged(self._context, state, answer.leader_epoch, answer.end_offset)
        if state.phase is FetchPhase.VALIDATING and state.error is None:
            state.validated()

    def _settle_failure(self, state: PartitionState, error: Exception, now_ms: int) -> None:
        if isinstance(error, UnsupportedVersionError):  # an old broker: then nothing can be validated
            state.validated()
        else:
            super()._settle_failure(state, error, now_ms)


def _has_outdated_leader(state: PartitionState) -> bool:
    """Whether the position was read, or committed, under a later leader than the one that is known."""
    assert state.leader is not None and state.leader.epoch is not None
    assert state.position is not None and state.position.leader_epoch is not None
    return state.position.leader_epoch > state.leader.epoch


def _build_validation(
    topics: dict[str, list[OffsetForLeaderPartition]], version: int
) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER_REPLICA_ID,
        topics=[OffsetForLeaderTopic(topic=name, partitions=found) for name, found in topics.items()],
    )


def truncate_if_diverged(context: FetchContext, state: PartitionState, epoch: int, end_offset: int) -> None:
    """Compare the position with where the leader's log ends for the epoch of the last record read.

    Where the log was truncated below the position, records that were returned are gone. Reading goes on where
    it was truncated, or as auto.offset.reset says if that is unknown. If it is none, the user decides.
    """
    assert state.position is not None
    offset = state.position.offset
    if epoch < 0 or end_offset < 0:
        context.reset_or_report(state, LogTruncationError({state.partition: offset}))
    elif end_offset < offset and context.reset_strategy is None:
        cut = OffsetAndMetadata(end_offset, "", epoch)
        state.fail(LogTruncationError({state.partition: offset}, {state.partition: cut}))
    elif end_offset < offset:
        context.tell(LogTruncated(state.partition, offset, end_offset))
        state.jump(FetchPosition(end_offset, epoch), validate=False)
