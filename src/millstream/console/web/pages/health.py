"""The health check, at ``/healthz``."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from millstream.console.console import Console
from millstream.console.web.access import has_login, viewer_of
from millstream.console.web.endpoints import Endpoint, Values


async def health(console: Console, request: Request) -> Values:
    """Whether the last round reached the brokers. Does not start a round."""
    view = console.sampler.current
    state = "unknown" if not view.rounds else "down" if view.trouble else "up"
    answer: Values = {"status": "ok", "broker": state}
    if has_login(request) and viewer_of(request) is None:
        return answer
    return {**answer, "rounds": view.rounds, **console.freshness(view)}


ENDPOINTS: Final = (Endpoint("/healthz", health, is_open=True),)
