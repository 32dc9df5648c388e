"""One request on its way to a broker, whoever asked for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from millstream.errors import MillstreamError
from millstream.wire.messages.fetch import FETCH
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.client")


class Call:
    """One request, from when it is given to a link until exactly one of its two callbacks is called.

    ``build`` makes the request for the version that is agreed with the broker. Without an expected response
    (acks=0), ``on_response`` gets None as soon as the request has been handed to the socket.
    """

    __slots__ = (
        "build",
        "correlation_id",
        "deadline_ms",
        "expects_response",
        "max_version",
        "on_failure",
        "on_response",
        "request_type",
        "sent_ms",
        "version",
    )

    def __init__(
        self,
        request_type: type[Request],
        build: Callable[[int], Request],
        deadline_ms: int,
        on_response: Callable[[Any], None],
        on_failure: Callable[[MillstreamError], None],
        *,
        max_version: int | None = None,
        expects_response: bool = True,
    ) -> None:
        self.request_type = request_type
        self.build = build
        self.deadline_ms = deadline_ms
        self.on_response = on_response
        self.on_failure = on_failure
        self.max_version = max_version
        self.expects_response = expects_response
        self.version = -1
        self.correlation_id = -1
        self.sent_ms = -1

    @property
    def name(self) -> str:
        return self.request_type.api.name

    @property
    def is_fetch(self) -> bool:
        """Whether the broker may keep it until there is data, and with it all that comes after it."""
        return self.request_type.api is FETCH

    def respond(self, response: Response | None) -> None:
        _protected(self.on_response, response, self.name)

    def fail(self, error: MillstreamError) -> None:
        _protected(self.on_failure, error, self.name)


def _protected(callback: Callable[[Any], None], argument: Any, name: str) -> None:
    """A callback that raises must not stop the others, nor leave the link half changed."""
    try:
        callback(argument)
    except Exception:
        log.exception("handling the outcome of %s failed", name)
