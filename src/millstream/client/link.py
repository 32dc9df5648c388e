"""The link to one broker: a connection, opened when needed, and the requests sent over it.

A link exists as long as its client knows the broker. It accepts requests at any time: it connects when there
is something to send (with TLS, if the settings say so), takes the set-up steps, waits out the back-off after
failures, and closes when idle. ::

    IDLE ──request──▶ BACKOFF ──time──▶ CONNECTING ──▶ SETUP ──all steps done──▶ READY
      ▲                                     │            │                         │
      └────────── failed, closed, idle ─────┴────────────┴─────────────────────────┘

When a connection ends, the outcome of its requests in flight is unknown: they fail with NetworkError, and the
sender decides. A broker that cannot be authenticated, or that does not accept the login, is not tried again:
requests fail with its AuthenticationError at once (``LinkRefusal`` says for how long).

A session that ends (KIP-368) is renewed before: the login follows the requests in flight, later requests wait
behind it, and none is lost.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from millstream.client.backoff import Backoff
from millstream.client.chance import chance
from millstream.client.cluster import BrokerInfo
from millstream.client.metrics import ClientMetrics
from millstream.client.refusals import LinkRefusal
from millstream.client.requests import Call, RequestQueue
from millstream.client.setup.exchange import Exchange
from millstream.client.setup.listener import ListenerCheck
from millstream.client.setup.security import ClientSecurity
from millstream.client.setup.steps import Ready, log_in, set_up
from millstream.config import ClientConfig
from millstream.errors import (
    AuthenticationError,
    BrokerError,
    ConfigError,
    MillstreamError,
    NetworkError,
    SaslAuthenticationFailedError,
)
from millstream.net.connect import Address, PendingConnection
from millstream.net.connection import FrameConnection
from millstream.net.reactor import Callback, Reactor, Timer
from millstream.security.tls_errors import explain
from millstream.wire.frames import encode_request
from millstream.wire.schema import Request
from millstream.wire.versions import BrokerVersions

log = logging.getLogger("millstream.client")


class LinkPhase(Enum):
    """How far a link is from a usable connection."""

    IDLE = "idle"
    BACKOFF = "backoff"
    CONNECTING = "connecting"
    SETUP = "setup"
    READY = "ready"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What a client's settings mean for each of its connections."""

    client_id: str
    software_version: str
    max_in_flight: int
    setup_timeout: Backoff
    reconnect: Backoff
    request_timeout_ms: int
    max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    security: ClientSecurity

    @classmethod
    def of(cls, config: ClientConfig, *, max_in_flight: int, software_version: str) -> LinkSettings:
        """Raises ConfigError where a certificate or a key cannot be read."""
        return cls(
            client_id=config.client_id,
            software_version=software_version,
            max_in_flight=max_in_flight,
            setup_timeout=Backoff(
                config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
            ),
            reconnect=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            request_timeout_ms=config.request_timeout_ms,
            max_idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            security=ClientSecurity(config),
        )


class LinkOwner(Protocol):
    """Is notified when a link becomes ready, ends, or may have room for more requests."""

    def link_changed(self, link: Link) -> None: ...


class Link:
    """The connection to one broker, and its requests. Belongs to the I/O thread."""

    def __init__(
        self,
        reactor: Reactor,
        broker: BrokerInfo,
        settings: LinkSettings,
        metrics: ClientMetrics,
        owner: LinkOwner,
    ) -> None:
        self.broker = broker
        self.phase = LinkPhase.IDLE
        self.failures = 0
        self.retry_at_ms = 0
        self.versions: BrokerVersions | None = None
        self._reactor = reactor
        self._settings = settings
        self._security = settings.security
        self.refused = LinkRefusal(reactor, self._security)
        self._metrics = metrics
        self._owner = owner
        self.requests = RequestQueue(reactor, settings.max_in_flight, metrics, self)
        self._next_correlation_id = 0
        self._untried_addresses: list[Address] = []
        self._attempt: PendingConnection | None = None
        self._connection: FrameConnection | None = None
        self._exchange: Exchange[Ready] | Exchange[int] | None = None
        self._renewal_timer: Timer | None = None
        self._check = ListenerCheck(reactor, self._security, self._checked)
        self._drop_reason: MillstreamError | None = None
        self._phase_timer: Timer | None = None

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to connect failed, and none has succeeded since."""
        return self.failures > 0 and self.phase is not LinkPhase.READY

    def connect(self) -> None:
        """Connect, though there is nothing to send yet."""
        if self.phase is LinkPhase.IDLE and self.refused.now() is None:
            self._start()

    def send(self, call: Call) -> None:
        """Send when the connection allows it; one of the call's callbacks follows, never inside this call."""
        if self.phase is LinkPhase.CLOSED:
            self._reactor.defer(lambda: call.fail(NetworkError(f"{self.broker}: the client is closed")))
            return
        refusal = self.refused.now()
        if refusal is not None:
            self._reactor.defer(lambda: call.fail(refusal))
            return
        self.requests.add(call)
        self.connect()

    def move(self, broker: BrokerInfo) -> None:
        """The broker has another address now: drop the connection to the old one."""
        moved = (broker.host, broker.port) != (self.broker.host, self.broker.port)
        self.broker = broker
        if moved and self.phase is not LinkPhase.CLOSED:
            self.failures = self.retry_at_ms = 0
            self.refused.forget()
            self._untried_addresses = []
            self._drop(NetworkError(f"the broker has moved: it is {broker} now"))

    def close(self, error: MillstreamError) -> None:
        """Close for good; all requests fail with ``error``."""
        self.phase = LinkPhase.CLOSED
        self._drop(error)

    # -- connecting

    def _start(self) -> None:
        if self.retry_at_ms > self._reactor.now_ms():
            self.phase = LinkPhase.BACKOFF
            self._set_timer(self.retry_at_ms, self._connect)
        else:
            self._connect()

    def _connect(self) -> None:
        self.phase = LinkPhase.CONNECTING
        settings = self._settings
        try:
            tls = None if self._security.tls is None else self._security.tls.current()
        except ConfigError as error:
            unusable = AuthenticationError(f"{self.broker}: cannot connect with TLS: {error}")
            self._reactor.defer(lambda: self.closed(unusable))
            return
        self._attempt = PendingConnection(
            self._reactor,
            self.broker.host,
            self.broker.port,
            self,
            timeout_ms=max(1, settings.setup_timeout.delay_ms(self.failures + 1, chance())),
            addresses=self._untried_addresses,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            tls=tls,
        )

    # -- set-up, and the renewal of a session

    def connected(self) -> None:
        """The socket is connected: take the set-up steps."""
        assert self._attempt is not None and self._attempt.connection is not None, "an attempt succeeded"
        self._connection, self._attempt = self._attempt.connection, None
        self._metrics.connections_opened += 1
        self.phase = LinkPhase.SETUP
        self._set_timer(self._reactor.now_ms() + self._settings.request_timeout_ms, self._setup_timed_out)
        steps = set_up(self.broker, self._settings.software_version, self._security)
        self._exchange = Exchange(self._reactor, steps, self.write, self._became_ready, self.abort)
        self._exchange.start()

    def _setup_timed_out(self) -> None:
        step = "accept the login" if self._security.sasl else "say which versions it speaks"
        self.abort(NetworkError(f"{self.broker} did not {step} in time"))

    def _became_ready(self, ready: Ready) -> None:
        self._cancel_timer()
        self._exchange = None
        self.phase = LinkPhase.READY
        self.versions, lifetime_ms = ready
        self.refused.forget()
        self._plan_renewal(lifetime_ms)
        self.failures = self.retry_at_ms = 0
        self._untried_addresses = []
        log.debug("connected to %s", self.broker)
        if self._settings.max_idle_ms >= 0:
            self._set_timer(self._reactor.now_ms() + self._settings.max_idle_ms, self._check_idle)
        self.requests.start()
        self.room_changed()

    def _plan_renewal(self, lifetime_ms: int) -> None:
        """Log in again after 85 to 95 % of the session's life, as Kafka's clients do."""
        if lifetime_ms > 0:
            delay_ms = int(lifetime_ms * (0.85 + 0.1 * chance()))
            self._renewal_timer = self._reactor.call_at(self._reactor.now_ms() + delay_ms, self._renew)

    def _renew(self) -> None:
        """Log in again, behind the requests in flight; later ones wait."""
        assert self.versions is not None, "a session belongs to a connection that is ready"
        self.requests.hold()
        steps = log_in(self.broker, self.versions, self._security)
        self._exchange = Exchange(self._reactor, steps, self.write, self._renewed, self._not_renewed)
        deadline_ms = self._reactor.now_ms() + self._settings.request_timeout_ms
        self._renewal_timer = self._reactor.call_at(deadline_ms, self._setup_timed_out)
        self._exchange.start()

    def _renewed(self, lifetime_ms: int) -> None:
        self._exchange = None
        self._cancel_renewal()
        self._metrics.reauthentications += 1
        self._plan_renewal(lifetime_ms)
        self.requests.release()

    def _not_renewed(self, error: MillstreamError) -> None:
        """A wrong password is final. Anything else may be cured, or told better, by a new connection."""
        if not isinstance(error, SaslAuthenticationFailedError):
            error = NetworkError(f"{self.broker}: the login was not renewed: {error}")
        self.abort(error)

    def _cancel_renewal(self) -> None:
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
            self._renewal_timer = None

    # -- the connection of the requests

    def write(self, request: Request, version: int) -> int:
        """Send a request; returns its correlation id."""
        assert self._connection is not None, "requests are written to an open connection"
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        chunks = encode_request(request, version, self._next_correlation_id, self._settings.client_id)
        self._metrics.bytes_sent += sum(map(len, chunks))
        self._connection.send(chunks)
        return self._next_correlation_id

    def frame_received(self, frame: memoryview) -> None:
        """An answer: to a step of the set-up or the renewal, or to the oldest request in flight."""
        try:
            exchange = self._exchange
            if exchange is not None and (self.phase is LinkPhase.SETUP or exchange.expects(frame)):
                exchange.receive(frame)
            else:
                self.requests.receive(frame)
                if not self.refused.is_cured:
                    self.refused.answered()
        except MillstreamError as error:
            self.abort(error)

    def abort(self, error: MillstreamError) -> None:
        """Close the connection because of an error, which fails all requests."""
        if self._connection is not None:
            self._connection.close(error)

    def room_changed(self) -> None:
        self._owner.link_changed(self)

    def _check_idle(self) -> None:
        """Close the connection if it was not used for connections.max.idle.ms, else look again then."""
        if self._connection is None:
            return
        now_ms = self._reactor.now_ms()
        idle_at_ms = self.requests.last_used_ms + self._settings.max_idle_ms
        if self.requests or idle_at_ms > now_ms:
            self._set_timer(max(idle_at_ms, now_ms + 1), self._check_idle)
            return
        log.debug("closing the idle connection to %s", self.broker)
        self._connection.close()

    # -- the end of a connection

    def closed(self, error: Exception | None) -> None:
        """The connection or the attempt ended: fail all requests, and wait before the next attempt."""
        usable = self.phase is LinkPhase.READY
        reason = self._reason(error)
        is_unclear = isinstance(reason, NetworkError) and self._may_be_another_listener(error)
        self._forget_connection()
        if self.phase is not LinkPhase.CLOSED:
            self.phase = LinkPhase.IDLE
            if not usable and self._drop_reason is None:
                self.failures += 1
                self._metrics.connections_failed += 1
            if error is not None or not usable or self.requests:
                delay_ms = self._settings.reconnect.delay_ms(max(self.failures, 1), chance())
                self.retry_at_ms = self._reactor.now_ms() + delay_ms
            log.debug("the connection to %s ended: %s", self.broker, error or "closed")
            if isinstance(reason, AuthenticationError):
                self.refused.by(reason)
            elif is_unclear:
                self._check.begin(self.broker)
        self.requests.fail_all(reason)
        self.room_changed()

    def _may_be_another_listener(self, error: Exception | None) -> bool:
        """Whether the peer took a connection and closed it, and no broker has answered this client yet."""
        was_taken = self._connection is not None or (self._attempt is not None and self._attempt.was_accepted)
        is_slow = isinstance(error, NetworkError | TimeoutError)  # says nothing about its protocol
        return was_taken and not is_slow and self._drop_reason is None and not self._security.has_succeeded

    def _checked(self, broker: BrokerInfo, problem: str) -> None:
        """It is known now why ``broker`` closed a connection without a word."""
        if broker == self.broker and self.phase is not LinkPhase.CLOSED and not self.refused.is_cured:
            error = AuthenticationError(f"{self.broker}: {problem}")
            self.refused.by(error)
            self._drop(error)
            self.room_changed()

    def _reason(self, error: Exception | None) -> MillstreamError:
        if self._drop_reason is not None:
            return self._drop_reason
        if isinstance(error, BrokerError):
            return error
        if isinstance(error, ssl.SSLError) and self.phase is not LinkPhase.READY:
            has_certificate = self._security.tls is not None and self._security.tls.has_certificate
            problem = explain(error, self.broker.host, has_certificate=has_certificate)
            return AuthenticationError(f"{self.broker}: {problem}")
        return NetworkError(f"{self.broker}: {error or self._check.words(self.phase is LinkPhase.READY)}")

    def _forget_connection(self) -> None:
        self._cancel_timer()
        self._cancel_renewal()
        if self._connection is not None:
            self._metrics.connections_closed += 1
        if self._exchange is not None:
            self._exchange.cancel()
        self._attempt = self._connection = self.versions = self._exchange = None

    def _drop(self, error: MillstreamError) -> None:
        """Close the connection or the attempt, if there is one, and fail all requests with ``error``."""
        self._drop_reason = error
        if self._connection is not None:
            self._connection.close()
        elif self._attempt is not None:
            self._attempt.close()
        else:
            self._cancel_timer()
            if self.phase is not LinkPhase.CLOSED:
                self.phase = LinkPhase.IDLE
            self.requests.fail_all(error)
        self._drop_reason = None

    # -- the timer of the phase: the end of the back-off, of the set-up's time, of idleness

    def _set_timer(self, deadline_ms: int, callback: Callback) -> None:
        self._cancel_timer()
        self._phase_timer = self._reactor.call_at(deadline_ms, callback)

    def _cancel_timer(self) -> None:
        if self._phase_timer is not None:
            self._phase_timer.cancel()
            self._phase_timer = None
