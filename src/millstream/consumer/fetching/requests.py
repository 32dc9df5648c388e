"""FetchRequests: what to fetch from each node, and when.

One request is in flight to each node. Partitions take turns. A partition is fetched again when what was
fetched of it has been returned to the user; where the log is known to have more, one chunk is fetched ahead,
so that fetching goes on while the user works. The memory for fetched data is divided among the nodes: a
request asks for no more than what is left of its node's share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from millstream.client.targets import Node
from millstream.consumer.fetching.context import FetchContext, is_retriable, wants_metadata
from millstream.consumer.fetching.partition_state import FetchPhase, PartitionState
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
    """A fetch in flight."""

    token: int
    plan: FetchRequestData
    since_ms: int
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
    review: dict[TopicPartition, None] = field(default_factory=dict)
    """The partitions that may have to be fetched from here, no more, or from another offset."""

    def free(self, now_ms: int) -> bool:
        return self.request is None and now_ms >= self.retry_at_ms

    def is_asked(self, state: PartitionState) -> bool:
        """Whether a fetch of this partition, at its present position, is in flight."""
        fetch = self.session.partitions.get(state.partition)
        return self.request is not None and fetch is not None and fetch.generation == state.generation


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
        self._places: dict[TopicPartition, FetchNode] = {}
        """The node in whose session each partition is."""
        self._sources: frozenset[int] = frozenset()

    # -- requests

    def poll(self, changed: Iterable[PartitionState], now_ms: int) -> list[Send]:
        """Ask each node that is free for what its partitions need. All others than ``changed`` are as before.

        A session in flight is left alone: what has changed is reviewed when its response is here.
        """
        for state in changed:
            self._review_later(state, now_ms)
        free = [node for node in self._nodes.values() if node.free(now_ms)]
        for node in free:
            self._review(node, now_ms)
        share = max(1, self._max_bytes // max(1, len(self._all_sources())))
        sends = []
        for node in free:
            self._review(node, now_ms)  # what was just given up by another node
            room = self._room(node.node_id, share) if node.session.partitions else None
            if room is not None:
                sends.append(self._send(node, room, now_ms))
        return sends

    def _review_later(self, state: PartitionState, now_ms: int) -> None:
        place = self._places.get(state.partition)
        if place is not None:
            place.review[state.partition] = None
        if self._is_wanted(state, now_ms):
            self._node(self._source(state, now_ms)).review[state.partition] = None

    def _is_wanted(self, state: PartitionState, now_ms: int) -> bool:
        """Whether the partition can be fetched now. Where there is no leader, metadata is refreshed."""
        return (
            state.phase is FetchPhase.FETCHING
            and not state.paused
            and state.error is None
            and now_ms >= state.retry_at_ms
            and self._context.positions.has(state)
            and self._context.has_leader(state, now_ms)
        )

    def _review(self, node: FetchNode, now_ms: int) -> None:
        """Bring the session of a free node up to date with what has changed."""
        review, node.review = node.review, {}
        for partition in review:
            state = self._context.positions.get(partition)
            is_wanted = state is not None and self._is_wanted(state, now_ms)
            source = self._node(self._source(state, now_ms)) if state is not None and is_wanted else None
            if state is None or source is not node:
                self._leave(node, partition, source)
                continue
            place = self._places.get(partition)
            if place is not None and place is not node and place.is_asked(state):
                place.review[partition] = None  # one request at a time: that node passes it on
                continue
            self._enter(node, state)

    def _leave(self, node: FetchNode, partition: TopicPartition, target: FetchNode | None) -> None:
        """Fetch a partition from this node no more, but perhaps from another one."""
        node.session.put(partition, None)
        if self._places.get(partition) is node:
            del self._places[partition]
            if target is not None:
                target.review[partition] = None

    def _enter(self, node: FetchNode, state: PartitionState) -> None:
        offset = self._next_offset(state)
        if offset is None:
            self._leave(node, state.partition, None)
            return
        assert state.leader is not None
        fetch = PartitionFetch(
            topic_id=state.leader.topic_id,
            offset=offset,
            leader_epoch=state.leader.epoch,
            max_bytes=self._config.max_partition_fetch_bytes,
            generation=state.generation,
        )
        node.session.put(state.partition, fetch)
        place = self._places.get(state.partition)
        if place is not None and place is not node:
            place.review[state.partition] = None
        self._places[state.partition] = node

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
        state.prefer(None)
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

    def _all_sources(self) -> frozenset[int]:
        """The nodes that the assigned partitions are fetched from."""
        attention = self._context.positions.attention
        if attention.sources_changed:
            attention.sources_changed = False
            self._sources = frozenset(
                state.preferred_replica if state.preferred_replica is not None else state.leader.node_id
                for state in self._context.positions.states()
                if state.leader is not None
            )
        return self._sources

    def _is_node_ready(self, node_id: int) -> bool:
        """Whether data of this node waits for the user, who will make room by taking it."""
        return any(chunk.frame.node_id == node_id for chunk in self._buffer.ready())

    def _send(self, node: FetchNode, room: int, now_ms: int) -> Send:
        token = self._context.next_token()
        plan = node.session.plan()
        node.request = FetchInFlight(
            token=token,
            plan=plan,
            since_ms=now_ms,
            reserved_bytes=min(room, len(plan.fetches) * self._config.max_partition_fetch_bytes),
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

    def asked_since_ms(self, state: PartitionState) -> int | None:
        """Since when a fetch of this partition is in flight; None if there is none."""
        node = self._places.get(state.partition)
        return node.request.since_ms if node is not None and node.request and node.is_asked(state) else None

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
        node, plan = self._finish(token)
        if response.throttle_time_ms > 0:
            node.retry_at_ms = now_ms + response.throttle_time_ms
        if response.error_code != ErrorCode.NONE:
            self._refused(node, plan, response.error_code, now_ms)
            return
        answers = plan.answers(response)
        if answers is None:  # its session is not ours: trust nothing in the response
            node.session.lost()
            self._node_failed(node, UnknownServerError("it named partitions that were not requested"), now_ms)
            return
        node.session.answered(response.session_id)
        node.failures, node.error = 0, None
        self._responses.take(node.node_id, plan, answers, now_ms)
        self._responses.report_leaders(plan, answers, response)

    def failed(self, token: int, error: Exception, now_ms: int) -> None:
        node, plan = self._finish(token)
        node.session.lost()
        self._node_failed(node, error, now_ms)
        self._settle_failure(plan, error)
        for state in self._waiting_for(plan):
            if state.preferred_replica == node.node_id:
                state.prefer(None)

    def _finish(self, token: int) -> tuple[FetchNode, FetchRequestData]:
        """End a request."""
        node = self._in_flight.pop(token)
        request, node.request = node.request, None
        assert request is not None and request.token == token
        return node, request.plan

    def _waiting_for(self, plan: FetchRequestData) -> Iterator[PartitionState]:
        """The partitions that still wait for the response to a request."""
        for partition, fetch in plan.fetches.items():
            state = self._context.positions.current(partition, fetch.generation)
            if state is not None:
                yield state

    def _refused(self, node: FetchNode, plan: FetchRequestData, code: int, now_ms: int) -> None:
        node.session.refused(code)
        error = for_code(code)(f"fetch from broker {node.node_id}")
        first = node.failures == 0
        self._node_failed(node, error, now_ms)
        if code in _SESSION_ERRORS and first:  # sessions do go away: start a new one at once
            node.retry_at_ms = min(node.retry_at_ms, now_ms)
        if code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR:
            self._context.want_metadata(_topics(plan.fetches))
        self._settle_failure(plan, error)

    def _settle_failure(self, plan: FetchRequestData, error: Exception) -> None:
        if wants_metadata(error):
            self._context.want_metadata(_topics(plan.fetches))
        if not is_retriable(error):
            for state in self._waiting_for(plan):
                state.fail(error)

    def _node_failed(self, node: FetchNode, error: Exception, now_ms: int) -> None:
        node.failures += 1
        node.retry_at_ms = max(node.retry_at_ms, now_ms + self._context.delay_ms(node.failures))
        node.error = error


def _topics(partitions: Iterable[TopicPartition]) -> set[str]:
    return {partition.topic for partition in partitions}
