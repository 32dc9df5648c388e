"""All loads, as JSON. The overview and the pages of groups show them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from millstream.console.console import Console
from millstream.console.web.endpoints import Endpoint, Values


async def loads(console: Console, request: Request) -> Values:
    """All loads, with the status of their tables."""
    view, snapshot = await console.view()
    return {**console.freshness(view), "loads": await console.load_rows(snapshot)}


ENDPOINTS: Final = (Endpoint("/api/loads", loads),)
