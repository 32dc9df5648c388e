"""The console's pages, one file each. A new page is a file with its ENDPOINTS, and a line here."""

from __future__ import annotations

from typing import Final

from millstream.console.web.endpoints import Endpoint
from millstream.console.web.pages import group, health, overview, topic

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *overview.ENDPOINTS,
    *topic.ENDPOINTS,
    *group.ENDPOINTS,
    *health.ENDPOINTS,
)
