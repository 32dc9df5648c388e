"""Connections between members and brokers, as TCP gives them: in order, or broken.

What is lost, late or out of order is so because a connection breaks or falls silent, or because things went
over different connections. A request of a broken connection may still arrive, before the client hears of the
break or, as a ghost, long after: the client does not know its fate either way.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from millstream.broker.groups.outcome import Caller
from millstream.consumer.sends import Send
from millstream.errors import MillstreamError, MillstreamTimeoutError, NetworkError
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.wire.schema import Request, Response
from tests.sim import wire

if TYPE_CHECKING:
    from tests.sim.cluster import Cluster
    from tests.sim.driver import Driver
    from tests.sim.world import World


class Core(Protocol):
    """What membership and offsets have in common."""

    def receive(self, token: int, response: Response, now_ms: int) -> None: ...
    def failed(self, token: int, error: Exception, now_ms: int) -> None: ...


class Network:
    """How long messages take, and which versions the two sides have agreed on."""

    def __init__(self, world: World, *, on_wire: bool, versions: dict[int, int]) -> None:
        self.world = world
        self.slowest_ms = 8
        self.ghost_probability = 0.0
        self.loss_probability = 0.0
        """Of questions for the coordinator, and of wrong answers to them."""
        self.on_wire = on_wire
        self._versions = versions

    def latency_ms(self) -> int:
        return self.world.rng.randint(1, self.slowest_ms)

    def version(self, request_type: type[Request]) -> int:
        return self._versions.get(request_type.api.key, request_type.api.max_version)


class Slot:
    """A request at the broker, and its place in the order of replies."""

    __slots__ = ("connection", "correlation", "request_type", "response", "version")

    def __init__(
        self, connection: Connection, correlation: int, request_type: type[Request], version: int
    ) -> None:
        self.connection = connection
        self.correlation = correlation
        self.request_type = request_type
        self.version = version
        self.response: Response | None = None

    def reply(self, response: Response) -> None:
        self.response = response
        self.connection.flush()


class Connection:
    """A member's connection to one broker, both ends of it."""

    def __init__(self, network: Network, cluster: Cluster, member: Driver, node_id: int) -> None:
        self.network = network
        self.world = network.world
        self.cluster = cluster
        self.member = member
        self.node_id = node_id
        self.incarnation = cluster.nodes[node_id]
        self.is_open = True
        self.is_silent = False
        self._cut_ms: int | None = None
        self._sent = 0
        self._pending: dict[int, tuple[Core, int]] = {}
        self._up_ms = self._down_ms = 0
        self._slots: deque[Slot] = deque()
        self._waiting: deque[tuple[Slot, Request]] = deque()

    # ---- the client's end ----

    def send(self, core: Core, send: Send) -> None:
        world = self.world
        version = self.network.version(send.request_type)
        if send.max_version is not None:
            version = min(version, send.max_version)
        try:
            request = send.build(version)
            if self.network.on_wire:
                request = wire.through_request(request, version)
        except MillstreamError as error:
            world.later(0, self.member.failed, core, send.token, error)
            return
        self._sent += 1
        self._pending[self._sent] = (core, send.token)
        self._up_ms = max(world.now_ms + self.network.latency_ms(), self._up_ms)
        world.later(self._up_ms - world.now_ms, self._arrive, self._sent, request, version)
        world.later(send.timeout_ms, self._time_out, self._sent)

    def _receive(self, correlation: int, response: Response) -> None:
        if not self.is_open or self._is_dumb():
            return
        core, token = self._pending.pop(correlation)
        self.member.received(core, token, response)

    def _time_out(self, correlation: int) -> None:
        if correlation in self._pending:
            self.close(MillstreamTimeoutError())
            self.member.io()

    def close(self, error: Exception) -> None:
        """Close the client's end: what is in flight has failed."""
        if not self.is_open:
            return
        self.is_open = False
        if self._cut_ms is None:
            self._cut_ms = self.world.now_ms
        self.member.connection_closed(self)
        pending, self._pending = self._pending, {}
        for core, token in pending.values():
            core.failed(token, error, self.world.now_ms)

    def _is_dumb(self) -> bool:
        return self._cut_ms is not None or self.is_silent or self.member.is_cut_off

    # ---- faults ----

    def break_off(self) -> None:
        """Lose what is in flight, but for requests about to arrive; the client hears of it a little later."""
        if self._cut_ms is not None:
            return
        grace_ms = self.world.rng.randint(0, self.network.slowest_ms)
        self._cut_ms = self.world.now_ms + grace_ms
        self.world.later(grace_ms + self.world.rng.randint(0, 40), self._notice_break)

    def _notice_break(self) -> None:
        if self.is_open:
            self.close(NetworkError())
            self.member.io()

    # ---- the broker's end ----

    def _arrive(self, correlation: int, request: Request, version: int) -> None:
        if self.is_silent or self.member.is_cut_off:
            return
        if self._cut_ms is not None and self.world.now_ms > self._cut_ms:
            if _may_haunt(request) and self.world.chance(self.network.ghost_probability):
                self.world.later(self.world.rng.randint(20, 800), self._haunt, request, version)
            return
        if not self._broker_lives():
            return
        slot = Slot(self, correlation, type(request), version)
        if self.cluster.is_sequential and self._slots:
            self._waiting.append((slot, request))
            return
        self._slots.append(slot)
        self._handle(slot, request)

    def _haunt(self, request: Request, version: int) -> None:
        """A request that everybody had given up arrives. Its answer goes nowhere."""
        if self._broker_lives():
            self._handle(Slot(self, 0, type(request), version), request)

    def _broker_lives(self) -> bool:
        return self.cluster.nodes[self.node_id] == self.incarnation

    def _handle(self, slot: Slot, request: Request) -> None:
        caller = Caller(self.member.name, "/sim", slot.version)
        self.cluster.handle(self.node_id, request, slot, caller, self.member)

    def flush(self) -> None:
        """Send the replies that are ready, in the order of their requests."""
        slots = self._slots
        if self._cut_ms is not None and self.world.now_ms > self._cut_ms:
            self._waiting.clear()  # a broker does not read on from a connection that is gone
        while slots and slots[0].response is not None:
            slot = slots.popleft()
            self._reply(slot)
            if self._waiting and self._broker_lives():
                following, request = self._waiting.popleft()
                slots.append(following)
                self._handle(following, request)

    def _reply(self, slot: Slot) -> None:
        if self._is_dumb():
            return
        response: Any = slot.response
        if self.network.on_wire:
            response = wire.through_response(slot.request_type, response, slot.version)
        self._down_ms = max(self.world.now_ms + self.network.latency_ms(), self._down_ms)
        self.world.later(self._down_ms - self.world.now_ms, self._receive, slot.correlation, response)


def _may_haunt(request: Request) -> bool:
    """Whether a late request is the protocol's business.

    A commit that arrives after a later one, or the join of a static member without an id that arrives after
    it has got one, cannot be told from the real thing by anybody: Kafka's protocol has no defence.
    """
    if isinstance(request, JoinGroupRequest):
        return bool(request.member_id)
    return isinstance(request, SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest)
