"""``millstream console`` at work: a socket, one line that says where, and a server until told to stop."""

from __future__ import annotations

import json
import os
import socket
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final

import uvicorn

from millstream.console.console import Console, Settings
from millstream.console.web.app import application
from millstream.console.web.guards import is_loopback
from millstream.settings import Address
from millstream.terminal.outcome import CommandError, UsageError

_GRACE_SECONDS: Final = 1
"""For answers under way when the console is stopped; those that wait for brokers are let go at once."""
_KEEP_ALIVE_SECONDS: Final = 30
_MOST_CONNECTIONS: Final = 500


@dataclass(frozen=True, slots=True)
class ServeOrder:
    """What was typed."""

    settings: Settings
    host: str = "127.0.0.1"
    port: int = 8090
    allow_remote: bool = False
    opens_browser: bool = False
    as_json: bool = False


class Server(uvicorn.Server):
    """Lets whoever waits for an answer go when a signal comes, so that the end is not waited for."""

    def __init__(self, console: Console, *, local_only: bool) -> None:
        self._console = console
        super().__init__(
            uvicorn.Config(
                application(console, local_only=local_only),
                http="h11",
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
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end. The signal itself is raised again by the base class once all is closed."""
        self._console.close()
        super().handle_exit(sig, frame)


def serve(order: ServeOrder, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, which are raised again at the end. ``announce`` is told where."""
    if not order.allow_remote and not is_loopback(order.host):
        raise UsageError(
            f"--host {order.host} lets other machines read every record, and there is no login: "
            "add --allow-remote if that is meant"
        )
    with listen(order.host, order.port) as listener:
        console = Console(order.settings)
        try:
            server = Server(console, local_only=is_loopback(order.host))
            url = f"http://{Address(order.host, listener.getsockname()[1])}/"
            announce(_ready_line(url, order))
            if order.opens_browser:
                webbrowser.open(url)
            server.run(sockets=[listener])
        finally:
            console.disconnect()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0 is any free one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0].lower()
        raise CommandError(
            f"the console cannot listen on {Address(host, port)} ({reason}): "
            "choose another with --port or --host"
        ) from error


def _ready_line(url: str, order: ServeOrder) -> str:
    if order.as_json:
        return json.dumps({"url": url, "bootstrap_servers": order.settings.servers, "pid": os.getpid()})
    return f"millstream console is ready on {url}, looking at {order.settings.servers}; Ctrl-C stops it"
