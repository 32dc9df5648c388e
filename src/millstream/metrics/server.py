"""A small HTTP server for ``/metrics``, ``/health`` and ``/ready``, on threads of its own.

It listens for this machine only, unless it was given another host. There is no login: what it shows are
numbers, with the names of topics, groups and clients.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

from millstream.errors import ConfigError
from millstream.metrics.exposition import CONTENT_TYPE

log = logging.getLogger("millstream.metrics")

_MAX_REQUESTS: Final = 16
"""Requests that are answered at a time; more are refused."""
_PATIENCE_S: Final = 10.0
_TEXT: Final = "text/plain; charset=utf-8"


class Monitored(Protocol):
    """What is asked for metrics and health. All methods are called on threads of the server."""

    def exposition(self) -> bytes:
        """Return the answer to a scrape. Raises TimeoutError where it takes too long."""

    def trouble(self) -> str:
        """Return why the process should be restarted; empty while it is alive."""

    def unreadiness(self) -> str:
        """Return why it cannot do its work now; empty if it can."""


def read_address(text: str | int) -> tuple[str, int]:
    """Read ``PORT`` or ``HOST:PORT``; the host is 127.0.0.1 unless given. Raises ConfigError."""
    host, _, port = str(text).rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"metrics port {text!r}: give a port from 0 to 65535, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


class MetricsServer:
    """Bound from the start; serves from ``start`` until ``close``."""

    def __init__(self, address: str | int) -> None:
        """``address``: ``PORT`` or ``HOST:PORT``; port 0 takes any free one. Raises ConfigError."""
        host, port = read_address(address)
        try:
            self._server = _Server(host, port)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"metrics cannot listen on {host}:{port}: {reason}. Choose another port"
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Where it listens, as ``host:port``."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def start(self, monitored: Monitored) -> None:
        """Answer requests from now on."""
        self._server.monitored = monitored
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="millstream-metrics", daemon=True
        )
        self._thread.start()
        log.info("metrics on http://%s/metrics", self.address)

    def close(self) -> None:
        """Stop listening."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    monitored: Monitored

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.is_local = is_loopback(host)
        self._free = threading.Semaphore(_MAX_REQUESTS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, unless too many are busy."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error of ours."""
        log.debug("a request for metrics of %s failed", client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S
    server_version = "millstream"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        # A page in a browser must not read this through a name that points here.
        if self.server.is_local and not is_loopback(_host_of(self.headers.get("Host", "127.0.0.1"))):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "this is for this machine only: use 127.0.0.1\n")
            return
        path = self.path.partition("?")[0]
        found: dict[str, Callable[[], None]] = {
            "/metrics": self._metrics,
            "/health": lambda: self._state(self.server.monitored.trouble()),
            "/ready": lambda: self._state(self.server.monitored.unreadiness()),
        }
        if path in found:
            found[path]()
        else:
            self._answer(HTTPStatus.NOT_FOUND, "there are /metrics, /health and /ready\n")

    def _metrics(self) -> None:
        try:
            body = self.server.monitored.exposition()
        except TimeoutError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n")
        else:
            self._answer(HTTPStatus.OK, body, CONTENT_TYPE)

    def _state(self, trouble: str) -> None:
        status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
        self._answer(status, f"{trouble or 'ok'}\n")

    def _answer(self, status: HTTPStatus, body: str | bytes, content_type: str = _TEXT) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: they come every few seconds."""


def _host_of(header: str) -> str:
    """The name in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header
