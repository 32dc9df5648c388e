"""FetchResponses: what a response means for each partition: data, no news, another replica, an error."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.client.cluster import BrokerInfo
from millstream.consumer.fetching.buffers import BatchCursor, Chunk, Frame
from millstream.consumer.fetching.context import FetchContext, partition_error, wants_metadata
from millstream.consumer.fetching.events import NewLeaders
from millstream.consumer.fetching.partition_state import FetchPhase, FetchPosition, PartitionState
from millstream.consumer.fetching.position_requests import truncate_if_diverged
from millstream.consumer.fetching.sessions import FetchRequestData
from millstream.errors import ErrorCode, OffsetOutOfRangeError, UnknownServerError, for_code
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import EpochEndOffset, FetchResponse, PartitionData

_NO_REPLICA = -1
_NEWER_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class FetchResponses:
    """Puts fetched data into the buffer, and handles everything else that a response may say."""

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._config = context.config
        self._buffer = context.buffer

    def take(
        self,
        node_id: int,
        plan: FetchRequestData,
        answers: Mapping[TopicPartition, PartitionData],
        now_ms: int,
    ) -> None:
        """Settle each partition that the answers name, and those that they should have named."""
        frame = Frame(node_id, sum(len(answer.records or b"") for answer in answers.values()))
        for partition, answer in answers.items():
            fetch = plan.fetches[partition]
            state = self._context.positions.current(partition, fetch.generation)
            if state is not None:
                self._take_one(state, fetch.offset, answer, frame, now_ms)
        for partition, fetch in plan.named.items():
            state = self._context.positions.current(partition, fetch.generation)
            if partition in answers or state is None:
                continue
            if plan.is_full:
                missing = UnknownServerError(f"{partition} was not answered")
                self._context.retry_later(state, missing, now_ms)
                self._context.want_metadata([partition.topic])
            else:  # the response of a session leaves out partitions without news
                _note_no_data(state, now_ms)

    def _take_one(
        self, state: PartitionState, offset: int, answer: PartitionData, frame: Frame, now_ms: int
    ) -> None:
        assert state.position is not None and state.phase is FetchPhase.FETCHING
        ahead = offset != state.position.offset
        if answer.error_code != ErrorCode.NONE:
            self._context.positions.rotate(state.partition)
            self._partition_failed(state, offset, answer.error_code, ahead, frame.node_id, now_ms)
            return
        state.succeeded()
        _note_offsets(state, answer)
        diverging = answer.diverging_epoch
        if diverging is not None and min(diverging.epoch, diverging.end_offset) >= 0:
            self._diverged(state, diverging, ahead, now_ms)
        elif answer.preferred_read_replica not in (_NO_REPLICA, frame.node_id):
            self._prefer(state, answer.preferred_read_replica, now_ms)
        elif answer.records:
            self._keep(state, offset, answer, frame)
        else:
            _note_no_data(state, now_ms)

    def _diverged(self, state: PartitionState, diverging: EpochEndOffset, ahead: bool, now_ms: int) -> None:
        generation = state.generation
        if not ahead:
            truncate_if_diverged(self._context, state, diverging.epoch, diverging.end_offset)
        if state.generation == generation:  # the position stays, and so may the answer
            self._context.retry_later(state, UnknownServerError(f"{state.partition} diverges"), now_ms)

    def _prefer(self, state: PartitionState, node_id: int, now_ms: int) -> None:
        """Fetch from this follower from now on, if it is up as far as we know."""
        if self._context.positions.is_online(state.partition, node_id):
            state.prefer(node_id, now_ms + self._config.metadata_max_age_ms)
        else:
            down = partition_error(ErrorCode.REPLICA_NOT_AVAILABLE, state.partition)
            self._context.retry_or_report(state, down, now_ms)

    def _keep(self, state: PartitionState, offset: int, answer: PartitionData, frame: Frame) -> None:
        assert state.position is not None
        waiting = self._buffer.waiting(state.partition)
        if offset != (waiting[-1].end_offset if waiting else state.position.offset):
            return  # fetched ahead of data that has been dropped
        view = memoryview(answer.records)
        aborted = answer.aborted_transactions or ()
        cursor = BatchCursor(state.partition, FetchPosition(offset), view, aborted, self._config)
        self._buffer.add(Chunk(cursor, view, state.generation, frame))
        state.caught_up_since_ms = None

    def _partition_failed(
        self, state: PartitionState, offset: int, code: int, ahead: bool, node_id: int, now_ms: int
    ) -> None:
        error = partition_error(code, state.partition)
        state.prefer(None)
        if ahead:  # it is fetched again when its turn comes, and judged then
            self._context.retry_later(state, error, now_ms)
            self._context.want_metadata([state.partition.topic] if wants_metadata(error) else [])
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # A follower may lag behind the leader: only the leader's word counts. (Which of them has answered
            # is not what is preferred now: the advice may have grown old while the fetch was waiting there.)
            if state.leader is not None and node_id == state.leader.node_id:
                gone = OffsetOutOfRangeError(offsets={state.partition: offset})
                self._context.reset_or_report(state, gone)
        elif code == ErrorCode.CORRUPT_MESSAGE:
            state.fail(for_code(code)(f"{state.partition} at offset {offset}"))
        else:
            self._context.retry_or_report(state, error, now_ms)

    def report_leaders(
        self, plan: FetchRequestData, answers: Mapping[TopicPartition, PartitionData], response: FetchResponse
    ) -> None:
        """Pass on what the broker says about leaders that it is not (KIP-951)."""
        leaders = {
            partition: (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            for partition, answer in answers.items()
            if answer.error_code in _NEWER_LEADER
            and answer.current_leader is not None
            and self._context.positions.current(partition, plan.fetches[partition].generation) is not None
        }
        known = {partition: leader for partition, leader in leaders.items() if min(leader) >= 0}
        if known:
            brokers = tuple(
                BrokerInfo(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints
            )
            self._context.tell(NewLeaders(known, brokers))


def _note_offsets(state: PartitionState, answer: PartitionData) -> None:
    if answer.high_watermark >= 0:
        state.high_watermark = answer.high_watermark
    if answer.last_stable_offset >= 0:
        state.last_stable_offset = answer.last_stable_offset


def _note_no_data(state: PartitionState, now_ms: int) -> None:
    state.succeeded()
    if state.caught_up_since_ms is None:
        state.caught_up_since_ms = now_ms
