"""What consumer, producer and admin have in common: one I/O thread with its connections and its view of the
cluster.

Two doors lead in:

- *On the I/O thread*, cores are driven: ``attach`` a core, and it is polled whenever something may have
  changed for it (an answer, new metadata, a connection, ``wake``) and when its own time comes. It sends with
  ``send`` and hears back by callbacks on the same thread, so that no core ever needs a lock.
- *From any other thread*, ``call`` sends a request and waits, and repeats it as each error's action says,
  until its time is up. ``submit`` and ``run`` bring any function over to the I/O thread.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
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
from millstream.errors import ClosedError, MillstreamError
from millstream.net.reactor import Timer
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.groups import FindCoordinatorResponse
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.schema import Request

log = logging.getLogger("millstream.client")

DEFAULT_MAX_IN_FLIGHT = 100
"""For clients that pace themselves."""
_LONGEST_SLEEP_MS = 1000
_DATA = frozenset({FETCH.key, PRODUCE.key})
"""Requests that are no questions: they keep their order on one connection."""


class Core(Protocol):
    """Something that decides what to send. Called on the I/O thread only."""

    def poll(self, now_ms: int) -> None:
        """Do what is due; send through the client."""

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When to poll again at the latest; None: not before something happens."""


class Client:
    """One I/O thread, its connections, metadata and coordinators. Ends with ``close``."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        auto_create_topics: bool = False,
        metadata_max_idle_ms: int | None = None,
    ) -> None:
        self.config = config
        self.metrics = ClientMetrics()
        self.closing = threading.Event()
        self.io = IoThread(config.client_id)
        self._reactor = self.io.reactor
        settings = LinkSettings.of(config, max_in_flight=max_in_flight, software_version=__version__)
        self.connections = Connections(
            self._reactor, config.bootstrap_servers, settings, self.metrics, owner=self
        )
        self.metadata = Metadata(
            self._reactor,
            config,
            self._send_to_any,
            self._metadata_changed,
            auto_create_topics=auto_create_topics,
            max_idle_ms=metadata_max_idle_ms,
        )
        self.coordinators = Coordinators(self._send_to_any)
        self._cores: list[Core] = []
        self._listeners: list[Callable[[Cluster], None]] = []
        self._poll_planned = False
        self._wake_planned = False
        self._wake_timer: Timer | None = None
        self.io.start()

    # -- from any thread

    @property
    def cluster(self) -> Cluster:
        """The newest picture of the cluster; may be empty at the beginning."""
        return self.metadata.cluster

    def submit(self, work: Callable[[], None]) -> None:
        """Run on the I/O thread soon. Raises ClosedError after ``close``."""
        self.io.submit(work)

    def wake(self) -> None:
        """Have the cores polled soon. Cheap when one is under way already."""
        if not self._wake_planned:
            self._wake_planned = True
            self._reactor.call_threadsafe(self._woken)

    def close(self, timeout_s: float | None = 5.0) -> bool:
        """Drop connections and end the thread; whatever waits fails with ClosedError. Repeating does no harm.

        Returns False when the thread has not ended in time; it is a daemon and cannot hold the process.
        """
        if self.io.is_forked:
            return True
        self.io.refuse(ClosedError())
        if not self.closing.is_set():
            self.closing.set()
            self._reactor.call_threadsafe(self._shut_down)
        return self.io.stop(timeout_s)

    def close_with(self, owner: object) -> None:
        """Close when the owner is collected, should it never be closed by
        itself.

        The client must hold no reference to its owner, nor may any core: they live as long as the thread
        does.
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
        """Call with each new picture of the cluster, before cores are polled."""
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
        """Send one request to a broker, or to whichever is least busy (None), once.

        ``build`` gets the version agreed on with that broker. Exactly one of the callbacks follows, after
        this call has returned: the response, or an error (NetworkError: connection lost, not made, or no
        answer in time, so that the request may or may not have been carried out; UnsupportedVersionError;
        ClosedError). ``can_wait``: nobody waits for the answer, which may come after that to a fetch.
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
        """Whether a request to this broker would leave at once; where it would not, a connection is begun."""
        try:
            link = self.connections.link(node_id)
        except MillstreamError:
            self.metadata.refresh_tracked()
            return False
        link.connect()
        return link.has_room

    def poll_soon(self) -> None:
        """Poll the cores at the end of this turn of the loop."""
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
        if channel is not Channel.DATA or request_type.api.key in _DATA or can_wait:
            return self.connections.link(node_id, channel)
        return self.connections.for_question(node_id)

    def _send_to_any(
        self,
        request_type: type[Request],
        build: Callable[[int], Request],
        on_response: Callable[[Any], None],
        on_failure: Callable[[MillstreamError], None],
        *,
        can_wait: bool = False,
    ) -> None:
        self.send(None, request_type, build, on_response, on_failure, can_wait=can_wait)

    def _learning_coordinators(self, on_response: Callable[[Any], None]) -> Callable[[Any], None]:
        """Coordinators come with their addresses: learn these before anybody sends there."""

        def learn(response: FindCoordinatorResponse) -> None:
            found = [(one.node_id, one.host, one.port) for one in response.coordinators if not one.error_code]
            if response.host and not response.error_code:
                found.append((response.node_id, response.host, response.port))
            for node_id, host, port in found:
                self.connections.learn(BrokerInfo(node_id, host, port))
            on_response(response)

        return learn

    def link_changed(self, link: Link) -> None:
        """An answer came, a connection became ready, or ended: cores may have something to do."""
        if link.is_failing:
            # Whoever cannot be reached may not lead or coordinate any more: learn who does.
            self.metadata.refresh_tracked()
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
                # Not at once: a core that always fails would keep the loop busy with nothing else.
                wake_ms = now_ms + 1000
            if wake_ms is not None:
                wakes.append(wake_ms)
        if wakes:
            self._wake_at(min(wakes))

    def _wake_at(self, wake_ms: int) -> None:
        """Have a timer no later than this. One that comes too early polls for nothing, and is set again."""
        timer = self._wake_timer
        # Not too far away: timers that are replaced stay in the loop's heap until their time.
        wake_ms = min(wake_ms, self._reactor.now_ms() + _LONGEST_SLEEP_MS)
        if timer is not None and timer.callback is not None:
            if timer.deadline_ms <= wake_ms:
                return
            timer.cancel()
        self._wake_timer = self._reactor.call_at(wake_ms, self._timer_rang)

    def _timer_rang(self) -> None:
        self._wake_timer = None
        self.poll_soon()

    def _shut_down(self) -> None:
        # Deferred behind the sockets' own sending: a last word, such as leaving a group, still gets out.
        self._reactor.defer(self._drop_all)

    def _drop_all(self) -> None:
        closed = ClosedError()
        self._cores.clear()
        self.metadata.close(closed)
        self.connections.close(closed)


def _abandon(client: Client) -> None:
    """The owner is gone. Collection may happen anywhere, so nothing is waited for."""
    if not client.closing.is_set():
        client.close(timeout_s=0)
