"""Connections between members and brokers, as TCP gives them: in order, or broken.

What is lost, late or out of order is so because a connection breaks or falls silent, or because things went
over different connections. A request of a broken connection may still arrive, before the client hears of the
break or, as a ghost, long after: the client does not know its fate either way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

from millstream.broker.groups.outcome import Caller
from millstream.net.connection import FrameHandler
from millstream.wire.frames import decode_request, encode_response
from millstream.wire.messages.group_offsets import OffsetCommitRequest
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.wire.schema import Request, Response
from tests.sim.loop import Loop
from tests.sim.world import World

FIRST_PORT: Final = 1
"""The port of broker 0; each has its own."""


class Host(Protocol):
    """A process that connects to brokers."""

    name: str
    is_alive: bool
    is_cut_off: bool
    network: Network
    connections: list[Connection]

    def sends(self, request: Request) -> None: ...


class Brokers(Protocol):
    """The brokers' side of the network."""

    nodes: list[int]
    is_sequential: bool

    def is_up(self, node_id: int) -> bool: ...

    def handle(self, node_id: int, request: Request, slot: Slot, caller: Caller, host: Any) -> None: ...


class Network:
    """How long messages take, and who is at the other end."""

    brokers: Brokers

    def __init__(self, world: World) -> None:
        self.world = world
        self.slowest_ms = 8
        self.ghost_probability = 0.0
        self.loss_probability = 0.0
        """Of questions for the coordinator, and of wrong answers to them."""

    def latency_ms(self) -> int:
        return self.world.rng.randint(1, self.slowest_ms)


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
    """A member's connection to one broker, both ends of it.

    To the client's link it is both a ``PendingConnection`` and the ``FrameConnection`` that becomes of it.
    """

    def __init__(
        self, reactor: Loop, host: str, port: int, handler: FrameHandler, *, timeout_ms: int, **_: Any
    ) -> None:
        self.member: Any = reactor.host
        self.network: Network = reactor.host.network
        self.cluster = self.network.brokers
        self.world = reactor.world
        self.node_id = port - FIRST_PORT
        self.incarnation = self.cluster.nodes[self.node_id]
        self.connection = self
        self.was_accepted = False
        self.is_open = True
        self.is_silent = False
        self._reactor = reactor
        self._handler = handler
        self._is_connected = False
        self._is_closed = False
        self._cut_ms: int | None = None
        self._unsent: list[bytes] = []
        self._up_ms = self._down_ms = 0
        self._slots: deque[Slot] = deque()
        self._waiting: deque[tuple[Slot, Request]] = deque()
        self.member.connections.append(self)
        self.world.later(self.network.latency_ms(), self._connect)
        self.world.later(timeout_ms, self._give_up)

    # ---- the client's end ----

    def _connect(self) -> None:
        if not self.is_open or self.member.is_cut_off:
            return
        if not self.cluster.is_up(self.node_id):
            self._reactor.turn(lambda: self.close(ConnectionError("the broker is down")))
            return
        self.incarnation = self.cluster.nodes[self.node_id]
        self._is_connected = True
        self._reactor.turn(self._handler.connected)

    def _give_up(self) -> None:
        if self.is_open and not self._is_connected:
            self._reactor.turn(lambda: self.close(ConnectionError("the broker did not answer in time")))

    def send(self, chunks: Iterable[Any]) -> None:
        self._unsent.append(b"".join(chunks))
        if len(self._unsent) == 1:
            self._reactor.defer(self._flush_sends)

    def _flush_sends(self) -> None:
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            header, request = decode_request(memoryview(frame)[4:])
            self.member.sends(request)
            self._up_ms = max(self.world.now_ms + self.network.latency_ms(), self._up_ms)
            slot = Slot(self, header.correlation_id, type(request), header.version)
            self.world.later(self._up_ms - self.world.now_ms, self._arrive, slot, request)

    def _receive(self, frame: bytes) -> None:
        if self.is_open and not self._is_dumb():
            self._reactor.turn(lambda: self._handler.frame_received(memoryview(frame)))

    def close(self, error: Exception | None = None) -> None:
        """Close the client's end. What was sent still arrives, but for commits."""
        if not self.is_open:
            return
        self.is_open = False
        self._unsent.clear()
        self.member.connections.remove(self)
        self._handler.closed(error)

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
        self._reactor.turn(lambda: self.close(ConnectionError("the connection broke")))

    # ---- the broker's end ----

    def _arrive(self, slot: Slot, request: Request) -> None:
        if self.is_silent or self.member.is_cut_off:
            return
        if self._cut_ms is not None and self.world.now_ms > self._cut_ms:
            if _may_haunt(request) and self.world.chance(self.network.ghost_probability):
                self.world.later(self.world.rng.randint(20, 800), self._haunt, slot, request)
            return
        if not self._broker_lives() or self._comes_too_late(request):
            return
        if self.cluster.is_sequential and self._slots:
            self._waiting.append((slot, request))
            return
        self._slots.append(slot)
        self._handle(slot, request)

    def _comes_too_late(self, request: Request) -> bool:
        """Commits end with their connection: the client relies on that, and sends newer ones elsewhere."""
        return not self.is_open and isinstance(request, OffsetCommitRequest)

    def _haunt(self, slot: Slot, request: Request) -> None:
        """A request that everybody had given up arrives. Its answer goes nowhere."""
        if self._broker_lives():
            self._handle(slot, request)

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
            while self._waiting and not slots and self._broker_lives():
                following, request = self._waiting.popleft()
                if not self._comes_too_late(request):
                    slots.append(following)
                    self._handle(following, request)

    def _reply(self, slot: Slot) -> None:
        if not self.is_open or self._is_dumb() or not self._broker_lives():
            return
        response: Any = slot.response
        frame = b"".join(encode_response(response, slot.version, slot.correlation))[4:]
        self._down_ms = max(self.world.now_ms + self.network.latency_ms(), self._down_ms)
        self.world.later(self._down_ms - self.world.now_ms, self._receive, frame)


def _may_haunt(request: Request) -> bool:
    """Whether a late request is the protocol's business.

    A commit that arrives after a later one, or the join of a static member without an id that arrives after
    it has got one, cannot be told from the real thing by anybody: Kafka's protocol has no defence.
    """
    if isinstance(request, JoinGroupRequest):
        return bool(request.member_id)
    return isinstance(request, SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest)
