"""The application: pages, JSON, static files, and the guard before all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from millstream.console import api, pages
from millstream.console.console import Console
from millstream.console.guards import Guard

STATIC: Final = Path(__file__).parent / "static"


def application(console: Console, *, local_only: bool) -> ASGIApp:
    """The ASGI application of a console. ``local_only``: it is meant for browsers of this machine."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        running = asyncio.create_task(console.run())
        try:
            yield
        finally:
            console.close()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    renderer = pages.Renderer(console)
    app = Starlette(
        routes=[
            *pages.routes(console, renderer),
            *api.routes(console),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={404: pages.not_found(renderer), Exception: pages.failed(renderer)},
        lifespan=lifespan,
    )
    return Guard(app, local_only=local_only)
