"""The process of ``millstream console``: listen, print one line when ready, serve until a signal."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

import uvicorn

from millstream.console.console import Console, ConsoleSettings
from millstream.console.login.login import Login
from millstream.console.web.access import ConsoleAccess
from millstream.console.web.app import application
from millstream.console.web.connections import ConsoleConnection
from millstream.console.web.guards import is_loopback
from millstream.console.web.handshakes import TlsListener
from millstream.console.web.proxies import TrustedProxies
from millstream.console.web.tls import TlsFiles, serving_context
from millstream.settings import Address
from millstream.terminal.outcome import CommandError, UsageError

_GRACE_SECONDS: Final = 1
"""For responses being sent when the console stops; requests that wait for brokers end at once."""
_KEEP_ALIVE_SECONDS: Final = 30
_MOST_CONNECTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What ``millstream console`` was told on the command line."""

    settings: ConsoleSettings
    host: str = "127.0.0.1"
    port: int = 8090
    allow_remote: bool = False
    """Let other machines connect without TLS, through a proxy that has it. A login is required anyway."""
    login: Login | None = None
    tls: TlsFiles | None = None
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    opens_browser: bool = False
    as_json: bool = False


class ConsoleServer(uvicorn.Server):
    """Ends waiting requests when a signal comes, so that it stops at once."""

    def __init__(
        self,
        console: Console,
        *,
        local_only: bool,
        access: ConsoleAccess | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._console = console
        config = uvicorn.Config(
            application(console, local_only=local_only, access=access),
            http=ConsoleConnection,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        config.load()
        self._tls = tls
        self._tls_listeners: list[TlsListener] = []
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve these sockets. The base class would let TLS handshakes wait a minute, any number of them."""
        await super().startup(sockets=[])
        loop = asyncio.get_running_loop()
        for listener in sockets or ():
            if self._tls is None:
                self.servers.append(await loop.create_server(self._connection, sock=listener))
            else:
                self._tls_listeners.append(TlsListener(listener, self._tls, self._connection))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end what is being served."""
        for listener in self._tls_listeners:
            listener.close()
        await super().shutdown(sockets)

    def _connection(self) -> ConsoleConnection:
        return ConsoleConnection(self.config, self.server_state, self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. The base class raises the signal again once all is closed."""
        self._console.close()
        super().handle_exit(sig, frame)


def serve(options: ServeOptions, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, which are raised again at the end. ``announce`` gets the ready line."""
    _require_protection(options)
    tls = None if options.tls is None else serving_context(options.tls)
    with listen(options.host, options.port) as listener:
        console = Console(options.settings)
        try:
            port = listener.getsockname()[1]
            access = None
            if options.login is not None:
                access = ConsoleAccess(options.login, port, has_tls=tls is not None, proxies=options.proxies)
            server = ConsoleServer(console, local_only=is_loopback(options.host), access=access, tls=tls)
            url = f"{'http' if tls is None else 'https'}://{Address(options.host, port)}/"
            announce(_ready_line(url, options))
            if options.opens_browser:
                webbrowser.open(url)
            server.run(sockets=[listener])
        finally:
            console.disconnect()


def _require_protection(options: ServeOptions) -> None:
    """Raise UsageError for a console that other machines could reach without a login, or without TLS."""
    if is_loopback(options.host):
        return
    if options.login is None:
        raise UsageError(
            f"--host {options.host} lets other machines read every record, and there is no login: "
            "add a user with 'millstream console-user add NAME', or give --bearer-token"
        )
    if options.tls is None and not options.allow_remote:
        raise UsageError(
            f"--host {options.host} without TLS lets others read passwords and records on the way: give "
            "--tls-certificate and --tls-key, or --allow-remote behind a proxy that has TLS"
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        raise CommandError(
            f"the console cannot listen on {Address(host, port)} ({reason}): "
            "choose another with --port or --host"
        ) from error


def _ready_line(url: str, options: ServeOptions) -> str:
    if options.as_json:
        return json.dumps({"url": url, "bootstrap_servers": options.settings.servers, "pid": os.getpid()})
    return f"millstream console is ready on {url}, for {options.settings.servers}; Ctrl-C stops it"
