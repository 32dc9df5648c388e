"""Listens, admits clients, and limits what they may use.

The memory of incomplete frames, the number of connections and the TLS handshakes under way each have a limit.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import replace
from typing import Final

from millstream.broker.connections.client import ClientConnection, Dispatch
from millstream.broker.connections.handshakes import Handshakes
from millstream.broker.connections.limits import ConnectionLimits, CreationRates, address_as_in_java
from millstream.broker.connections.listening import ListeningSocket
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.quotas.control import ClientQuotas
from millstream.broker.security.listener_security import ListenerSecurity
from millstream.broker.security.listeners import Listener
from millstream.errors import CorruptMessage, MillstreamError, SaslAuthenticationFailedError
from millstream.net.reactor import Reactor
from millstream.net.transport import PlainTransport, Transport
from millstream.settings import Address

log = logging.getLogger("millstream.broker")

_SWEEP_MS: Final = 1000
STRANGER_LINES_PER_MINUTE: Final = 30
_LOGIN_MS: Final = 30_000
"""How long a client may take to log in: strangers must not hold sockets for as long as an idle client may."""


class FrameMemory:
    """The memory of all incomplete large frames. Above the limit, the largest holder is closed.

    A client that has not logged in goes before all that have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[ClientConnection, int] = {}
        self.total = 0

    def reserve(self, client: ClientConnection, size: int) -> None:
        self._held[client] = self._held.get(client, 0) + size
        self.total += size
        while self.total > self._limit:
            largest = max(self._held, key=lambda each: (each.awaits_login, self._held[each]))
            self.release(largest)
            largest.close("incomplete requests take too much memory: the largest is closed")

    def release(self, client: ClientConnection) -> None:
        """Release all that a client holds: it has one frame at a time."""
        self.total -= self._held.pop(client, 0)


class _LogLimit:
    """At most some lines per minute about strangers, who could otherwise fill the disk with them."""

    def __init__(self) -> None:
        self._minute = -1
        self._lines = 0

    def info(self, now_ms: int, message: str, *values: object) -> None:
        """Log a line; beyond the limit of this minute, for debugging only."""
        minute, left_out = now_ms // 60_000, max(0, self._lines - STRANGER_LINES_PER_MINUTE)
        if minute != self._minute:
            self._minute, self._lines = minute, 0
            if left_out:
                log.info("left out %d more lines about clients that did not get in", left_out)
        self._lines += 1
        log.log(logging.INFO if self._lines <= STRANGER_LINES_PER_MINUTE else logging.DEBUG, message, *values)


class BrokerServer:
    """Accepts connections, and enforces their limits."""

    def __init__(
        self,
        reactor: Reactor,
        dispatch: Dispatch,
        metrics: BrokerMetrics,
        *,
        max_request_bytes: int,
        limits: ConnectionLimits,
        rates: CreationRates,
        quotas: ClientQuotas,
        max_frame_memory: int,
        idle_ms: int,
        stalled_frame_ms: int,
    ) -> None:
        self.reactor = reactor
        self.dispatch = dispatch
        self.metrics = metrics
        self.max_request_bytes = max_request_bytes
        self.memory = FrameMemory(max_frame_memory)
        self._limits = limits
        self._rates = rates
        self._quotas = quotas
        self._idle_ms = idle_ms
        self._stalled_frame_ms = stalled_frame_ms
        self._clients: set[ClientConnection] = set()
        self._strangers = _LogLimit()
        self._handshakes = Handshakes(reactor)
        self._listening: list[ListeningSocket] = []

    def listen(self, security: ListenerSecurity) -> Listener:
        """Bind and accept connections; return the listener, with the actual port if its port is 0."""

        def admit(sock: socket.socket) -> int:
            self._admit(sock, security)
            limit = security.settings.max_connection_creation_rate
            return self._rates.pause_ms(security.listener.name, limit, self.reactor.now_ms())

        listening = ListeningSocket(self.reactor, security.listener, admit)
        if not self._listening:
            self._plan_sweep()
        self._listening.append(listening)
        return replace(security.listener, address=Address(*listening.address))

    def stop_listening(self) -> None:
        """Accept no new connections; open ones are still served."""
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        self._handshakes.close()

    def close(self) -> None:
        """Stop listening and close every connection."""
        self.stop_listening()
        for client in list(self._clients):
            client.connection.close()

    @property
    def has_pending_answers(self) -> bool:
        """Whether any client has unsent answers, or waits for the disk."""
        return any(client.connection.unsent_bytes or client.awaits_write for client in self._clients)

    def client_closed(self, client: ClientConnection, error: Exception | None) -> None:
        self._clients.discard(client)
        self._limits.release(client.remote_host, client.listener.name)
        self.metrics.connections_open -= 1
        now_ms = self.reactor.now_ms()
        if isinstance(error, SaslAuthenticationFailedError):
            self._strangers.info(now_ms, "refused a login from %s: %s", client.remote_host, error)
        elif isinstance(error, MillstreamError) and client.awaits_login:
            self._strangers.info(now_ms, "closed the connection from %s: %s", client.remote_host, error)
        elif isinstance(error, MillstreamError):
            log.warning("closed the connection from %s: %s", client.remote_host, error)
        elif error is not None:
            log.debug("the connection from %s broke: %s", client.remote_host, error)

    def _admit(self, sock: socket.socket, security: ListenerSecurity) -> None:
        self.metrics.connections_total += 1
        sock.setblocking(False)
        try:
            host = address_as_in_java(sock.getpeername()[0])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:  # the client is gone already
            log.debug("a client closed its connection before it was accepted: %s", error)
            sock.close()
            return
        limit = security.settings.max_connections
        refusal = "" if self._quotas.may_connect(host) else "it connects too often (connection_creation_rate)"
        if refusal := refusal or self._limits.admit(host, security.listener.name, limit):
            self.metrics.connections_refused += 1
            self._strangers.info(self.reactor.now_ms(), "refused a connection from %s: %s", host, refusal)
            sock.close()
            return
        context = security.tls_context()
        if context is None:
            self._serve(PlainTransport(sock), security, host)
            return

        def failed(error: Exception) -> None:
            self._limits.release(host, security.listener.name)
            self.metrics.handshakes_failed += 1
            now_ms = self.reactor.now_ms()
            self._strangers.info(now_ms, "the TLS handshake with %s failed: %s", host, error)

        self._handshakes.begin(
            sock, context, lambda transport: self._serve(transport, security, host), failed
        )

    def _serve(self, transport: Transport, security: ListenerSecurity, host: str) -> None:
        try:
            client = ClientConnection(self, transport, security)
        except ConnectionRefusedError as error:
            self._strangers.info(self.reactor.now_ms(), "a client was refused: %s", error)
            self._limits.release(host, security.listener.name)
            transport.close()
            return
        except OSError as error:  # the client is gone already
            log.debug("a client closed its connection before it was served: %s", error)
            self._limits.release(host, security.listener.name)
            transport.close()
            return
        self._clients.add(client)
        self.metrics.connections_open += 1

    def _plan_sweep(self) -> None:
        self.reactor.call_at(self.reactor.now_ms() + _SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        """Close connections that are idle or stalled."""
        if not self._listening:
            return
        now_ms = self.reactor.now_ms()
        for client in list(self._clients):
            self._check_client(client, now_ms)
        self._plan_sweep()

    def _check_client(self, client: ClientConnection, now_ms: int) -> None:
        connection = client.connection
        if client.is_muted:  # its silence is ours
            connection.last_read_ms = now_ms
            return
        silent_ms = now_ms - connection.last_read_ms
        if client.awaits_login and now_ms - client.connected_ms > _LOGIN_MS:
            connection.close(CorruptMessage("no login in time"))
            return
        if connection.frame_incomplete and silent_ms > self._stalled_frame_ms:
            connection.close(CorruptMessage(f"an incomplete request received nothing for {silent_ms} ms"))
        elif silent_ms > self._idle_ms and not connection.unsent_bytes:
            connection.close()
