"""The application: pages, JSON, static files, and the guard before all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from millstream.console.console import Console
from millstream.console.web import api, pages
from millstream.console.web.guards import Guard

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
Handler = Callable[[Request, Exception], Awaitable[Response]]


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
        exception_handlers={
            404: _either(pages.not_found(renderer), api.refused),
            405: _either(_only_get, api.refused),
            Exception: _logged(_either(pages.failed(renderer), api.failed)),
        },
        lifespan=lifespan,
    )
    return Guard(app, local_only=local_only)


def _either(for_people: Handler, for_scripts: Handler) -> Handler:
    """Answer a page's error as a page, and an error under ``/api`` as JSON."""

    async def respond(request: Request, error: Exception) -> Response:
        return await (for_scripts if api.is_asked_for(request) else for_people)(request, error)

    return respond


async def _only_get(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    return PlainTextResponse(error.detail, status_code=error.status_code, headers=error.headers)


def _logged(answer: Handler) -> Handler:
    """Write down a defect of ours."""

    async def respond(request: Request, error: Exception) -> Response:
        log.error("the console has failed at %s", request.url.path, exc_info=error)
        return await answer(request, error)

    return respond
