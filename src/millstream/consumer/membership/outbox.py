"""Outbox: which requests a member sends, and when."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from millstream.client.targets import AnyNode, CoordinatorOf, Node
from millstream.consumer.assignors.base import Subscription
from millstream.consumer.assignors.protocol import encode_subscription
from millstream.consumer.membership import requests
from millstream.consumer.membership.leaves import Leave
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.state import MemberState
from millstream.consumer.sends import Send
from millstream.wire.messages.group_admin import DescribeGroupsRequest
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.wire.schema import Request


class RequestKind(Enum):
    """What a request in flight is."""

    FIND = auto()
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    DESCRIBE = auto()


class Outbox:
    """Turns a member's state into requests, and remembers those in flight."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._config = state.config
        self._coordinator = CoordinatorOf(state.who.group_id)
        self._in_flight: dict[int, RequestKind] = {}
        self._last_token = 0

    def take(self, token: int) -> RequestKind | None:
        """The request has ended: what was it? None for one that never was, or has ended before."""
        return self._in_flight.pop(token, None)

    def due(self, now_ms: int) -> list[Send]:
        """The requests to send now: at most one of a kind is ever in flight."""
        state = self._state
        leave = state.leaves.due(now_ms)
        if state.lookup.node is None:
            return [self._find_coordinator()] if state.needs_coordinator and state.lookup.due(now_ms) else []
        sends = [self._leave(leave)] if leave is not None else []
        if state.is_beating and state.heartbeats.due(now_ms):
            sends.append(self._heartbeat(now_ms))
        elif state.exchange is None and now_ms >= state.retry_at_ms:
            if state.phase is MemberPhase.JOINING:
                sends.append(self._join(now_ms))
            elif state.phase is MemberPhase.SYNCING:
                sends.append(self._sync(now_ms))
            elif self._must_describe():
                sends.append(self._describe())
        return sends

    def next_wake_ms(self) -> int | None:
        """When something is due next, unless something else happens before."""
        state = self._state
        moments = [state.leaves.next_wake_ms(has_coordinator=state.lookup.node is not None)]
        if state.lookup.node is None:
            if state.needs_coordinator and not state.lookup.in_flight:
                moments.append(state.lookup.retry_at_ms)
        elif state.phase in (MemberPhase.JOINING, MemberPhase.SYNCING):
            moments.append(state.retry_at_ms if state.exchange is None else None)
        elif state.is_beating and state.heartbeats.in_flight is None:
            moments.append(state.heartbeats.next_ms)
            moments.append(state.retry_at_ms if self._must_describe() else None)
        return min((moment for moment in moments if moment is not None), default=None)

    def _send(
        self,
        kind: RequestKind,
        build: Callable[[int], Request],
        request_type: type[Request],
        timeout_ms: int,
        target: AnyNode | CoordinatorOf | Node | None = None,
    ) -> Send:
        self._last_token += 1
        self._in_flight[self._last_token] = kind
        return Send(self._last_token, target or self._coordinator, build, request_type, timeout_ms)

    def _find_coordinator(self) -> Send:
        self._state.lookup.in_flight = True
        build = requests.find_coordinator(self._state.who.group_id)
        timeout_ms = self._config.request_timeout_ms
        return self._send(RequestKind.FIND, build, FindCoordinatorRequest, timeout_ms, AnyNode())

    def _join(self, now_ms: int) -> Send:
        state = self._state
        assert state.wanted is not None
        state.joined_topics = state.wanted.topics
        state.rejoin_reason = None  # whatever it was, this join takes care of it
        build = requests.join_group(state.who, self._config, self._subscriptions(), state.join_reason)
        send = self._send(RequestKind.JOIN, build, JoinGroupRequest, requests.join_timeout_ms(self._config))
        state.exchange, state.exchange_sent_ms = send.token, now_ms
        return send

    def _subscriptions(self) -> dict[str, bytes]:
        """The subscription for the leader, once for each assignor, the preferred one first."""
        state = self._state
        topics = tuple(sorted(state.joined_topics))
        owned = tuple(sorted(state.ownership.owned))
        return {
            assignor.name: encode_subscription(
                Subscription(
                    topics=topics,
                    user_data=assignor.subscription_user_data(topics),
                    owned_partitions=owned,
                    generation_id=state.who.generation_id,
                    rack_id=self._config.client_rack or None,
                )
            )
            for assignor in state.assignors
        }

    def _sync(self, now_ms: int) -> Send:
        state = self._state
        build = requests.sync_group(state.who, state.protocol_name, state.assignments)
        send = self._send(RequestKind.SYNC, build, SyncGroupRequest, requests.join_timeout_ms(self._config))
        state.exchange, state.exchange_sent_ms = send.token, now_ms
        return send

    def _heartbeat(self, now_ms: int) -> Send:
        # Half a session, so that there is time for another one on a new connection.
        timeout_ms = min(self._config.request_timeout_ms, max(1, self._config.session_timeout_ms // 2))
        send = self._send(
            RequestKind.HEARTBEAT, requests.heartbeat(self._state.who), HeartbeatRequest, timeout_ms
        )
        self._state.heartbeats.sent(send.token, now_ms)
        return send

    def _leave(self, leave: Leave) -> Send:
        self._state.leaves.in_flight = True
        build = requests.leave_group(self._state.who.group_id, leave.member_id, leave.reason)
        timeout_ms = self._config.request_timeout_ms
        return self._send(RequestKind.LEAVE, build, LeaveGroupRequest, timeout_ms, self._past_a_join())

    def _past_a_join(self) -> CoordinatorOf | Node:
        """The coordinator, on another connection than a join or sync of ours that is still parked there:
        Apache Kafka reads the next request of a connection when it has answered the one before.
        """
        node = self._state.lookup.node
        if node is None or {RequestKind.JOIN, RequestKind.SYNC}.isdisjoint(self._in_flight.values()):
            return self._coordinator
        return Node(node.node_id)

    def _must_describe(self) -> bool:
        state = self._state
        return (
            state.must_review
            and state.review is None
            and state.phase in (MemberPhase.SETTLING, MemberPhase.STABLE)
            and (state.group_members is not None or state.looked_up.issuperset(state.joined_topics))
        )

    def _describe(self) -> Send:
        build = requests.describe_group(self._state.who.group_id)
        send = self._send(RequestKind.DESCRIBE, build, DescribeGroupsRequest, self._config.request_timeout_ms)
        self._state.review = send.token
        return send
