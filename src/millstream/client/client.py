"""What consumer, producer and admin share: one I/O thread with connections, metadata and coordinators.

There are two ways to use it:

- *On the I/O thread*, cores are driven: ``attach`` a core, and it is polled whenever something may have
  changed for it (an answer, new metadata, a connection, ``wake``) and at its own wake-up time. It sends with
  ``send`` and gets callbacks on the same thread, so that no core needs a lock.
- *From any other thread*, ``BlockingCalls`` sends a request, waits, and retries until its deadline;
  ``submit`` and ``io.run`` run a function on the I/O thread.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from millstream import __version__
from millstream.client.cluster import BrokerInfo, Cluster
from millstream.client.connections import Channel, Connections
from millstream.client.coordinators import Coordinators
from millstream.client.io_thread import IoThread
from millstream.client.link import Link, LinkSettings
from millstream.client.metadata import Metadata
from millstream.client.metrics import ClientMetrics
from millstream.client.requests import Call
from millstream.config import ClientConfig
from millstream.errors import AuthenticationError, ClosedError, MillstreamError
from millstream.net.reactor import Timer
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_offsets import OFFSET_FETCH
from millstream.wire.messages.groups import FindCoordinatorResponse
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.schema import Request

log = logging.getLogger("millstream.client")

DEFAULT_MAX_IN_FLIGHT = 100
"""For clients that limit their requests themselves."""
_LONGEST_SLEEP_MS = 1000
_DATA = frozenset({FETCH.key, PRODUCE.key})
"""Requests that must keep their order on one connection."""


class Core(Protocol):
    """Decides what to send. Called on the I/O thread only."""

    def poll(self, now_ms: int) -> None:
        """Do what is due; send through the client."""

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When to poll again at the latest; None: when something happens."""


class Client:
    """One I/O thread, its connections, metadata and coordinators. Ends with ``close``."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        auto_create_topics: bool = False,
        metadata_max_idle_ms: int | None = None,
        io: IoThread | None = None,
    ) -> None:
        """``io``: the thread with its event loop and clock, if it is not to have one of its own."""
        self.config = config
        self.metrics = ClientMetrics()
        settings = LinkSettings.of(config, max_in_flight=max_in_flight, software_version=__version__)
        self.closing = threading.Event()
        self.refusal: AuthenticationError | None = None
        """Why the cluster does not let this client in. Any thread may read it."""
        self.io = io or IoThread(config.client_id)
        self._reactor = self.io.reactor
        self.connections = Connections(
            self._reactor,
            config.bootstrap_servers,
            settings,
            self.metrics,
            owner=self,
            rebootstraps=config.metadata_recovery_strategy == "rebootstrap",
        )
        self.metadata = Metadata(
            self._reactor,
            config,
            partial(self.send, None),
            self._metadata_changed,
            auto_create_topics=auto_create_topics,
            max_idle_ms=metadata_max_idle_ms,
        )
        self.coordinators = Coordinators(partial(self.send, None))
        self._cores: list[Core] = []
        self._listeners: list[Callable[[Cluster], None]] = []
        self._poll_planned = False
        self._wake_planned = False
        self._wake_timer: Timer | None = None
        self.io.start()

    # -- from any thread

    @property
    def cluster(self) -> Cluster:
        """The newest metadata; empty at first."""
        return self.metadata.cluster

    def check_let_in(self) -> None:
        """Raise AuthenticationError while the cluster does not let this client in."""
        if self.refusal is not None:
            raise type(self.refusal)(self.refusal.detail)

    def submit(self, work: Callable[[], None]) -> None:
        """Run on the I/O thread soon. Raises ClosedError after ``close``."""
        self.io.submit(work)

    def wake(self) -> None:
        """Have the cores polled soon. Cheap if that is planned already."""
        if not self._wake_planned:
            self._wake_planned = True
            self._reactor.call_threadsafe(self._woken)

    def close(self, timeout_s: float | None = 5.0) -> bool:
        """Close connections and end the thread; requests fail with ClosedError. Closing again is harmless.

        Returns False if the thread has not ended in time; as a daemon, it cannot keep the process alive.
        """
        if self.io.is_forked:
            return True
        self.io.refuse(ClosedError())
        if not self.closing.is_set():
            self.closing.set()
            self._reactor.call_threadsafe(self._shut_down)
        return self.io.stop(timeout_s)

    def close_with(self, owner: object) -> None:
        """Close when ``owner`` is garbage-collected without a close.

        Neither the client nor a core may refer to the owner: they live as long as the thread.
        """
        weakref.finalize(owner, _abandon, self).atexit = False  # the thread is a daemon: it ends by itself

    # -- on the I/O thread

    def attach(self, core: Core) -> None:
        """Poll this core from now on."""
        self._cores.append(core)
        self.poll_soon()

    def detach(self, core: Core) -> None:
        self._cores.remove(core)

    def on_metadata(self, listener: Callable[[Cluster], None]) -> None:
        """Call ``listener`` with new metadata, before cores are polled."""
        self._listeners.append(listener)

    def send(
        self,
        node_id: int | None,
        request_type: type[Request],
        build: Callable[[int], Request],
        on_response: Callable[[Any], None],
        on_failure: Callable[[MillstreamError], None],
        *,
        timeout_ms: int | None = None,
        channel: Channel = Channel.DATA,
        max_version: int | None = None,
        expects_response: bool = True,
        can_wait: bool = False,
    ) -> None:
        """Send one request to a broker, or to the least busy one (None), once.

        ``build`` gets the version agreed on with that broker. Exactly one of the callbacks follows, after
        this call has returned: the response, or an error (NetworkError: no connection, connection lost, or no
        answer in time, so that the request may or may not have been handled; UnsupportedVersionError;
        ClosedError). ``can_wait``: the answer is not urgent, and may come after that to a fetch.
        """
        deadline_ms = self._reactor.now_ms() + (timeout_ms or self.config.request_timeout_ms)
        call = Call(
            request_type,
            build,
            deadline_ms,
            on_response,
            on_failure,
            max_version=max_version,
            expects_response=expects_response,
        )
        try:
            link = self._link(node_id, request_type, channel, can_wait)
        except MillstreamError as error:
            unknown = error
            self.metadata.refresh_tracked()
            self._reactor.defer(lambda: call.fail(unknown))
            return
        if request_type.api.name == "FindCoordinator":
            call.on_response = self._learning_coordinators(on_response)
        link.send(call)

    def has_room(self, node_id: int) -> bool:
        """Whether a request to this broker would be sent at once; connects if there is no connection."""
        try:
            link = self.connections.link(node_id)
        except MillstreamError:
            self.metadata.refresh_tracked()
            return False
        link.connect()
        return link.requests.has_room

    def poll_soon(self) -> None:
        """Poll the cores at the end of this turn of the reactor."""
        if not self._poll_planned:
            self._poll_planned = True
            self._reactor.defer(self._poll_cores)

    def now_ms(self) -> int:
        return self._reactor.now_ms()

    # -- inside

    def _link(
        self, node_id: int | None, request_type: type[Request], channel: Channel, can_wait: bool
    ) -> Link:
        if node_id is None:
            return self.connections.least_loaded(can_wait=can_wait)
        if channel is Channel.COORDINATOR and request_type.api is OFFSET_FETCH:
            return self.connections.for_offset_fetch(node_id)
        if channel is not Channel.DATA or request_type.api.key in _DATA or can_wait:
            return self.connections.link(node_id, channel)
        return self.connections.for_request(node_id)

    def _learning_coordinators(self, on_response: Callable[[Any], None]) -> Callable[[Any], None]:
        """Learn the addresses of coordinators before anything is sent to them."""

        def learn(response: FindCoordinatorResponse) -> None:
            found = [(one.node_id, one.host, one.port) for one in response.coordinators if not one.error_code]
            if response.host and not response.error_code:
                found.append((response.node_id, response.host, response.port))
            for node_id, host, port in found:
                self.connections.learn(BrokerInfo(node_id, host, port))
            on_response(response)

        return learn

    def link_changed(self, link: Link) -> None:
        """An answer came, or a connection became ready or ended: cores may have something to do."""
        if link.is_failing:
            # An unreachable broker may no longer lead or coordinate: learn which broker does.
            self.metadata.refresh_tracked()
        if link.refused.error is not None or self.refusal is not None:
            self.refusal = self.connections.refusal()
        self.poll_soon()

    def _metadata_changed(self, cluster: Cluster) -> None:
        self.metrics.metadata_refreshes += 1
        self.connections.update(cluster)
        for listener in self._listeners:
            listener(cluster)
        self.poll_soon()

    def _woken(self) -> None:
        self._wake_planned = False
        self.poll_soon()

    def _poll_cores(self) -> None:
        self._poll_planned = False
        wakes: list[int] = []
        for core in tuple(self._cores):
            now_ms = self._reactor.now_ms()
            try:
                core.poll(now_ms)
                wake_ms = core.next_wake_ms(now_ms)
            except Exception:
                log.exception("the core of client %s failed", self.config.client_id)
                # Not at once: a core that always fails would keep the loop busy.
                wake_ms = now_ms + 1000
            if wake_ms is not None:
                wakes.append(wake_ms)
        if wakes:
            self._wake_at(min(wakes))

    def _wake_at(self, wake_ms: int) -> None:
        """Set a timer no later than ``wake_ms``. One that fires too early only polls, and is set again."""
        timer = self._wake_timer
        # Not too far away: replaced timers stay in the reactor's heap until their deadline.
        wake_ms = min(wake_ms, self._reactor.now_ms() + _LONGEST_SLEEP_MS)
        if timer is not None and timer.callback is not None:
            if timer.deadline_ms <= wake_ms:
                return
            timer.cancel()
        self._wake_timer = self._reactor.call_at(wake_ms, self._timer_fired)

    def _timer_fired(self) -> None:
        self._wake_timer = None
        self.poll_soon()

    def _shut_down(self) -> None:
        # Deferred behind the sockets' sends, so that a last request, such as leaving a group, is still sent.
        self._reactor.defer(self._drop_all)

    def _drop_all(self) -> None:
        closed = ClosedError()
        self._cores.clear()
        self.metadata.close(closed)
        self.connections.close(closed)


def _abandon(client: Client) -> None:
    """The owner was collected. That may happen on any thread, so do not wait."""
    if not client.closing.is_set():
        client.close(timeout_s=0)
