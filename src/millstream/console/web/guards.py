"""Protects against DNS rebinding, and adds security headers to every response.

A foreign web page can make a browser send requests to this machine under a host name that resolves to
127.0.0.1, and would then read the answers. So a console that listens on this machine only answers to this
machine's names only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms would have the Origin null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_REFUSAL: Final = "This console is for this machine only: open it as http://127.0.0.1 or http://localhost.\n"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on ``host``."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The name in a Host header, without the port: ``[::1]:8090`` is ``::1``."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if ":" in header else header


class RequestGuard:
    """Refuses requests under foreign host names, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, *, local_only: bool) -> None:
        self._app = app
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if self._local_only and not is_loopback(host_of(Headers(scope=scope).get("host", ""))):
            refusal = PlainTextResponse(_REFUSAL, status_code=421)
            await refusal(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)
