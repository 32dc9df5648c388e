"""The broker's life: start on a data directory, serve clients until ``stop``, close the logs cleanly.

Everything runs on the thread that calls ``run``, except what waits for the disk: syncs (``flusher``), and the
heavy part of compaction and deletion (``maintenance``).
"""

from __future__ import annotations

import gc
import logging
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.broker.connections.limits import ConnectionLimits, CreationRates, read_overrides
from millstream.broker.connections.listening import check_remote
from millstream.broker.dispatch import handler_of
from millstream.broker.log.files import Files
from millstream.broker.log.segments.file_pool import share_of_descriptors
from millstream.broker.request_context import RequestContext
from millstream.broker.scrape import BrokerMonitor
from millstream.broker.security.listener_security import ListenerSecurity
from millstream.broker.security.listeners import Listener
from millstream.broker.security.users import UserKey
from millstream.broker.server import BrokerServer
from millstream.broker.services import Services
from millstream.broker.settings import BrokerSettings
from millstream.errors import ConfigError
from millstream.metrics.server import MetricsServer, is_loopback, read_address
from millstream.security.sasl.scram import ScramCredential
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_STALLED_FRAME_MS: Final = 30_000
_SPARE_DESCRIPTORS: Final = 64
"""File descriptors that neither connections nor logs may use: for directories, threads and handshakes."""
_MACOS_DESCRIPTORS: Final = 10_240
"""The most that macOS allows, although its hard limit may say that there is none."""
_DRAIN_MS: Final = 1000
"""How long a stop waits for pending answers."""
_GC_THRESHOLD: Final = 20_000
"""After how many more objects the garbage collector looks for cycles, of which the broker makes few.

Every request that names 1,000 partitions exceeds Python's 700: with it, the collector took a fourth of the
time of a commit of 10,000 offsets.
"""


class Broker:
    """One broker on one data directory."""

    def __init__(self, data_directory: Path, settings: BrokerSettings, files: Files | None = None) -> None:
        self.services = Services(data_directory, settings, files)
        self.reactor = self.services.reactor
        self.listeners: tuple[Listener, ...] = ()
        """Where clients can connect, with the actual ports, after ``start``."""
        self.client_properties: Path | None = None
        """The file with the settings of clients, if the broker made itself secure."""
        self._server = BrokerServer(
            self.reactor,
            self.dispatch,
            self.services.metrics,
            max_request_bytes=settings.socket_request_max_bytes,
            limits=ConnectionLimits(
                min(settings.max_connections, _raise_descriptor_limit()),
                settings.max_connections_per_ip,
                read_overrides(settings.max_connections_per_ip_overrides),
            ),
            rates=CreationRates(
                settings.max_connection_creation_rate,
                settings.quota_window_num,
                settings.quota_window_size_seconds * 1000,
            ),
            quotas=self.services.quotas,
            max_frame_memory=settings.queued_max_request_bytes,
            idle_ms=settings.connections_max_idle_ms,
            stalled_frame_ms=_STALLED_FRAME_MS,
        )
        self.metrics_server: MetricsServer | None = None
        """Serves the broker's metrics over HTTP, if ``launch`` was told where."""
        self._monitor = BrokerMonitor(self.services)

    @staticmethod
    def launch(
        data: Path,
        properties: Mapping[str, object],
        listen: str,
        *,
        allow_remote: bool,
        secure: bool,
        metrics: str = "",
    ) -> Broker:
        """Make a broker from Kafka's settings, and start it, in a process that does nothing else.

        ``secure``: with TLS, a login and ACLs, for which everything is in the data directory afterwards.
        ``metrics``: where to serve metrics, as ``PORT`` or ``HOST:PORT``; nowhere if it is empty.
        """
        served = _bound_metrics(metrics, allow_remote=allow_remote)
        try:
            broker = Broker._launched(data, properties, listen, allow_remote=allow_remote, secure=secure)
        except BaseException:
            if served is not None:
                served.close()
            raise
        if served is not None:
            broker.metrics_server = served
            served.start(broker._monitor)
        return broker

    @staticmethod
    def _launched(
        data: Path, properties: Mapping[str, object], listen: str, *, allow_remote: bool, secure: bool
    ) -> Broker:
        gc.set_threshold(_GC_THRESHOLD)
        if not secure:
            broker = Broker(data, BrokerSettings.from_properties(properties))
            broker.start(listen, allow_remote=allow_remote)
            return broker
        from millstream.broker.security import bootstrap

        named = listen if "://" in listen else f"SASL_SSL://{listen}"
        listeners = BrokerSettings.from_properties(properties).served_listeners(named)
        hosts = {
            each.host for listener in listeners for each in (listener.address, listener.advertised) if each
        }
        made = bootstrap.secure_settings(data, hosts)
        broker = Broker(data, BrokerSettings.from_properties({**made, **properties}))
        broker.start(named, allow_remote=allow_remote, first_user=bootstrap.first_user(data))
        first = broker.listeners[0]
        broker.client_properties = bootstrap.write_client_properties(data, first.advertised or first.address)
        return broker

    def start(
        self,
        listen: str,
        *,
        allow_remote: bool = False,
        first_user: tuple[UserKey, ScramCredential] | None = None,
    ) -> None:
        """Open the data directory and listen. When this returns, clients can connect; ``run`` serves them.

        ``listen``: ``host:port``, or listeners with names; the setting ``listeners`` goes before it.
        ``first_user``: stored before anyone can connect, unless there is a user of this name.
        """
        settings, users = self.services.settings, self.services.scram_users
        listeners = settings.served_listeners(listen)
        securities = [
            ListenerSecurity(listener, settings.of_listener(listener.name), users) for listener in listeners
        ]
        for security in securities:
            check_remote(security.listener, authenticates=security.authenticates, allow_remote=allow_remote)
        self.services.open()
        if first_user is not None and self.services.scram_users.get(*first_user[0]) is None:
            self.services.scram_users.change(dict([first_user]))
        self.listeners = tuple(map(self._server.listen, securities))
        shown = ", ".join(map(str, self.listeners))
        log.info("listening on %s, data in %s", shown, self.services.data_directory)

    @property
    def address(self) -> str:
        """The address of the first listener, as ``host:port``."""
        return str(self.listeners[0].address) if self.listeners else ""

    def run(self) -> None:
        """Serve until ``stop``; then close the logs cleanly."""
        self.reactor.run()
        if self.metrics_server is not None:
            self.metrics_server.close()
        self.services.close()
        log.info("stopped")

    def dispatch(self, request: Request, context: RequestContext) -> Response | None:
        """Answer a request now, or return None and reply through ``context`` later."""
        self.services.quotas.watch(context)
        access = self.services.access
        if access is not None and (refusal := access.check(request, context)) is not None:
            return refusal
        if request.api in self.services.groups.apis:
            self.services.groups.handle(request, context)
            return None
        response: Response | None = handler_of(request.api)(self.services, request, context)
        return response

    def stop(self) -> None:
        """Stop soon: send pending answers, then end ``run``. Any thread or signal handler may call this."""
        self.reactor.call_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        if self._monitor.is_stopping:
            return
        self._monitor.is_stopping = True
        self._server.stop_listening()
        self.services.groups.stop()
        self._finish_stop(self.reactor.now_ms() + _DRAIN_MS)

    def _finish_stop(self, deadline_ms: int) -> None:
        now_ms = self.reactor.now_ms()
        if self._server.has_pending_answers and now_ms < deadline_ms:
            self.reactor.call_at(now_ms + 5, lambda: self._finish_stop(deadline_ms))
            return
        self._server.close()
        # Several logs at a time, on the flusher's threads: closing would sync them one after another.
        unsynced = self.services.directory.unsynced_logs()
        self.services.flusher.when_durable(unsynced, lambda _: self.reactor.stop())


def _bound_metrics(address: str, *, allow_remote: bool) -> MetricsServer | None:
    """Bind the address of the metrics before anything is opened. Raises ConfigError."""
    if not address:
        return None
    host, _ = read_address(address)
    if not is_loopback(host) and not allow_remote:
        raise ConfigError(
            f"metrics on {host} can be reached from other machines, and have no login: "
            "leave the host out, or say --allow-remote if everyone on the network may see them"
        )
    return MetricsServer(address)


def _raise_descriptor_limit() -> int:
    """Raise the limit of open files as far as the system allows; return how many connections may use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MACOS_DESCRIPTORS):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        soft = wanted
        break
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(16, soft - share_of_descriptors() - _SPARE_DESCRIPTORS)
