"""The console's pages. A new page is a file here with its ENDPOINTS, and a template."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from millstream.console.web.endpoints import Endpoint

ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for page in iter_modules(__path__)
    for endpoint in import_module(f"{__name__}.{page.name}").ENDPOINTS
)
