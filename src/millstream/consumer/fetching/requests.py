"""FetchRequests: what to fetch from each node, and when.

One request is in flight to each node. Partitions take turns. A partition is fetched again when what was
fetched of it has been returned to the user; where the log is known to have more, one chunk is fetched ahead,
so that fetching goes on while the user works. The memory for fetched data is divided among the nodes: a
request asks for no more than what is left of its node's share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from millstream.client.targets import Node
from millstream.consumer.fetching.context import FetchContext, is_retriable, wants_metadata
from millstream.consumer.fetching.positions import PartitionState
from millstream.consumer.fetching.responses import FetchResponses
from millstream.consumer.fetching.sessions import FetchRequestData, FetchSessionHandler, PartitionFetch
from millstream.consumer.sends import Send
from millstream.errors import (
    ErrorCode,
    UnknownServerError,
    for_code,
)
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import FetchRequest, FetchResponse

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class FetchInFlight:
    """A fetch in flight: each partition with the generation for which it was sent."""

    token: int
    plan: FetchRequestData
    generations: Mapping[TopicPartition, int]
    reserved_bytes: int


@dataclass(slots=True)
class FetchNode:
    """A broker to fetch from: its session, the request in flight, and how the last one went."""

    node_id: int
    session: FetchSessionHandler = field(default_factory=FetchSessionHandler)
    request: FetchInFlight | None = None
    retry_at_ms: int = 0
    failures: int = 0
    error: Exception | None = None
    """Why the last request failed; None after a success."""

    def free(self, now_ms: int) -> bool:
        return self.request is None and now_ms >= self.retry_at_ms


class FetchRequests:
    """Sends fetch requests, and puts what they bring into the buffer."""

    def __init__(self, context: FetchContext) -> None:
        self._context = context
        self._config = context.config
        self._max_bytes = max(1, context.config.queued_max_bytes)
        self._buffer = context.buffer
        self._responses = FetchResponses(context)
        self._nodes: dict[int, FetchNode] = {}
        self._in_flight: dict[int, FetchNode] = {}

    # -- requests

    def poll(self, due: Sequence[PartitionState], now_ms: int) -> list[Send]:
        """Ask each node that is free for what its partitions need; ``due`` have a good position."""
        self._buffer.drop_stale()
        wanted = self._wanted([state for state in due if not state.paused], now_ms)
        share = max(1, self._max_bytes // max(1, len(self._sources())))
        sends = []
        for node_id, fetches in wanted.items():
            room = self._room(node_id, share)
            if room is not None:
                sends.append(self._send(self._nodes[node_id], fetches, room, now_ms))
        return sends

    def _wanted(
        self, due: Sequence[PartitionState], now_ms: int
    ) -> dict[int, dict[TopicPartition, PartitionFetch]]:
        wanted: defaultdict[int, dict[TopicPartition, PartitionFetch]] = defaultdict(dict)
        for states in self._context.by_leader(due, now_ms).values():
            for state in states:
                offset = self._next_offset(state)
                node = self._node(self._source(state, now_ms))
                if offset is None or not node.free(now_ms):
                    continue
                assert state.leader is not None
                wanted[node.node_id][state.partition] = PartitionFetch(
                    topic_id=state.leader.topic_id,
                    offset=offset,
                    leader_epoch=state.leader.epoch,
                    max_bytes=self._config.max_partition_fetch_bytes,
                )
        return wanted

    def _next_offset(self, state: PartitionState) -> int | None:
        """Where to fetch next; None when enough of the partition is waiting, or no more is wanted."""
        assert state.position is not None
        waiting = self._buffer.waiting(state.partition)
        offset = waiting[-1].end_offset if waiting else state.position.offset
        if offset is None or (state.fetch_end is not None and offset >= state.fetch_end):
            return None
        if not waiting:
            return offset
        end = state.end_offset(read_committed=self._config.read_committed)
        return None if len(waiting) > 1 or end is None or offset >= end else offset

    def _source(self, state: PartitionState, now_ms: int) -> int:
        """The leader, or the closer follower that it named, unless that one is known to be down (KIP-392)."""
        assert state.leader is not None
        preferred = state.preferred_node(now_ms)
        if preferred is None:
            return state.leader.node_id
        if self._context.positions.is_online(state.partition, preferred):
            return preferred
        state.preferred_replica = None
        self._context.want_metadata([state.partition.topic])
        return state.leader.node_id

    def _room(self, node_id: int, share: int) -> int | None:
        """How many bytes a node may send now; None: earlier data must be returned to the user first."""
        enough = max(1, share // 2)  # better wait than fetch little
        if self._room_left(node_id, share) < enough and not self._is_node_ready(node_id):
            self._buffer.drop_paused()
        room = self._room_left(node_id, share)
        return min(room, self._config.fetch_max_bytes) if room >= enough else None

    def _room_left(self, node_id: int, share: int) -> int:
        reserved = sum(node.request.reserved_bytes for node in self._in_flight.values() if node.request)
        total = self._max_bytes - self._buffer.held_bytes - reserved
        return min(share - self._buffer.held_from(node_id), total)

    def _sources(self) -> set[int]:
        """The nodes that the assigned partitions are fetched from."""
        return {
            state.preferred_replica if state.preferred_replica is not None else state.leader.node_id
            for state in self._context.positions.states()
            if state.leader is not None
        }

    def _is_node_ready(self, node_id: int) -> bool:
        """Whether data of this node waits for the user, who will make room by taking it."""
        return any(chunk.frame.node_id == node_id for chunk in self._buffer.ready())

    def _send(
        self, node: FetchNode, fetches: Mapping[TopicPartition, PartitionFetch], room: int, now_ms: int
    ) -> Send:
        token = self._context.next_token()
        plan = node.session.plan(fetches)
        states = [self._context.positions.get(partition) for partition in fetches]
        node.request = FetchInFlight(
            token=token,
            plan=plan,
            generations={state.partition: state.asked(now_ms) for state in states if state is not None},
            reserved_bytes=min(room, len(fetches) * self._config.max_partition_fetch_bytes),
        )
        self._in_flight[token] = node
        build = partial(plan.build, self._config, room)
        timeout_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        return Send(token, Node(node.node_id), build, FetchRequest, timeout_ms, plan.max_version)

    def _node(self, node_id: int) -> FetchNode:
        if node_id not in self._nodes:
            self._nodes[node_id] = FetchNode(node_id)
        return self._nodes[node_id]

    def node(self, node_id: int) -> FetchNode | None:
        return self._nodes.get(node_id)

    def is_asked(self, state: PartitionState, now_ms: int) -> bool:
        """Whether a request is in flight to the node that this partition is fetched from."""
        if state.leader is None or state.without_leader:
            return False
        node = self._nodes.get(self._source(state, now_ms))
        return node is not None and node.request is not None

    def next_wake_ms(self, now_ms: int) -> int | None:
        times = [node.retry_at_ms for node in self._nodes.values() if node.retry_at_ms > now_ms]
        return min(times, default=None)

    def close(self) -> list[Send]:
        """The requests that end the sessions at the brokers. No one waits for the responses."""
        sends = []
        for node in self._nodes.values():
            if plan := node.session.close():
                build = partial(plan.build, self._config, 0)
                token = self._context.next_token()
                sends.append(
                    Send(token, Node(node.node_id), build, FetchRequest, self._config.request_timeout_ms)
                )
        return sends

    # -- answers

    def owns(self, token: int) -> bool:
        return token in self._in_flight

    def receive(self, token: int, response: FetchResponse, now_ms: int) -> None:
        node, request, states = self._finish(token)
        if response.throttle_time_ms > 0:
            node.retry_at_ms = now_ms + response.throttle_time_ms
        if response.error_code != ErrorCode.NONE:
            self._refused(node, request, states, response.error_code, now_ms)
            return
        answers = request.plan.answers(response)
        if answers is None:  # its session is not ours: trust nothing in the response
            node.session.lost()
            self._node_failed(node, UnknownServerError("it named partitions that were not requested"), now_ms)
            return
        node.session.answered(response.session_id)
        node.failures, node.error = 0, None
        self._responses.take(node.node_id, request.plan, states, answers, now_ms)
        self._responses.report_leaders(states, answers, response)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        node, request, states = self._finish(token)
        node.session.lost()
        self._node_failed(node, error, now_ms)
        self._settle_failure(request, states, error)
        for state in states.values():
            if state.preferred_replica == node.node_id:
                state.preferred_replica = None

    def _finish(self, token: int) -> tuple[FetchNode, FetchInFlight, dict[TopicPartition, PartitionState]]:
        """End a request; returns it with the partitions that still wait for it."""
        node = self._in_flight.pop(token)
        request, node.request = node.request, None
        assert request is not None and request.token == token
        states = {}
        for partition, generation in request.generations.items():
            state = self._context.positions.current(partition, generation)
            if state is not None:
                state.answered()
                states[partition] = state
        return node, request, states

    def _refused(
        self,
        node: FetchNode,
        request: FetchInFlight,
        states: Mapping[TopicPartition, PartitionState],
        code: int,
        now_ms: int,
    ) -> None:
        node.session.refused(code)
        error = for_code(code)(f"fetch from broker {node.node_id}")
        first = node.failures == 0
        self._node_failed(node, error, now_ms)
        if code in _SESSION_ERRORS and first:  # sessions do go away: start a new one at once
            node.retry_at_ms = min(node.retry_at_ms, now_ms)
        if code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._context.want_metadata(_topics(request.plan.fetches))
        self._settle_failure(request, states, error)

    def _settle_failure(
        self, request: FetchInFlight, states: Mapping[TopicPartition, PartitionState], error: Exception
    ) -> None:
        if wants_metadata(error):
            self._context.want_metadata(_topics(request.plan.fetches))
        if not is_retriable(error):
            for state in states.values():
                state.error = error

    def _node_failed(self, node: FetchNode, error: Exception, now_ms: int) -> None:
        node.failures += 1
        node.retry_at_ms = max(node.retry_at_ms, now_ms + self._context.delay_ms(node.failures))
        node.error = error


def _topics(partitions: Iterable[TopicPartition]) -> set[str]:
    return {partition.topic for partition in partitions}
