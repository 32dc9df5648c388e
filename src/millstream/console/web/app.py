"""The ASGI application: routes of all endpoints, error responses, static files, behind the guard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from millstream.console.console import Console
from millstream.console.errors import ConsoleError, NotFoundError
from millstream.console.web.access import AccessGuard, ConsoleAccess, LoginPages, has_login, viewer_of
from millstream.console.web.changes import Changes
from millstream.console.web.endpoints import Endpoint, Page, name_of
from millstream.console.web.guards import RequestGuard
from millstream.console.web.pages import ENDPOINTS
from millstream.console.web.responses import PageRenderer, ReadableJson, wants_json
from millstream.suggestions import nearest

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
_LISTS: Final = [endpoint.path for endpoint in ENDPOINTS if "{" not in endpoint.path]
_Handler = Callable[[Request], Awaitable[Response]]


def application(console: Console, *, local_only: bool, access: ConsoleAccess | None = None) -> ASGIApp:
    """The application of a console. ``local_only``: refuse requests under names of other machines.

    ``access``: who may look at it; everyone who reaches it without.
    """

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

    renderer = PageRenderer(console)
    errors = _ErrorResponses(renderer)
    app: ASGIApp = Starlette(
        routes=[
            *(
                (*LoginPages(access, renderer).routes(), *Changes(console).routes())
                if access is not None
                else ()
            ),
            *(route for endpoint in ENDPOINTS for route in _routes(endpoint, console, renderer)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={
            ConsoleError: errors.refused,
            404: errors.no_such_address,
            405: errors.only_get,
            Exception: errors.failed,
        },
        lifespan=lifespan,
    )
    if access is not None:
        app = AccessGuard(app, access, {endpoint.path for endpoint in ENDPOINTS if endpoint.is_open})
    return RequestGuard(app, local_only=local_only)


def _routes(endpoint: Endpoint, console: Console, renderer: PageRenderer) -> Iterator[Route]:
    async def answer(request: Request) -> Response:
        return ReadableJson(await endpoint.answer(console, request))

    yield Route(endpoint.path, answer, methods=["GET"])
    if endpoint.page is not None:
        yield Route(endpoint.page.path, _shown(endpoint, endpoint.page, console, renderer), methods=["GET"])


def _shown(endpoint: Endpoint, page: Page, console: Console, renderer: PageRenderer) -> _Handler:
    async def respond(request: Request) -> Response:
        answer = await endpoint.answer(console, request)
        more = await page.more(console, request, answer)
        return renderer.page(endpoint, page, answer, more, name_of(request), viewer_of(request))

    return respond


class _ErrorResponses:
    """Errors as JSON for the endpoints of scripts, else as a page."""

    def __init__(self, renderer: PageRenderer) -> None:
        self._renderer = renderer

    async def refused(self, request: Request, error: Exception) -> Response:
        """A name that does not exist, a wrong query, or no data yet."""
        assert isinstance(error, ConsoleError), "it is registered for these"
        kind, near = (error.kind, error.near) if isinstance(error, NotFoundError) else ("", [])
        if not wants_json(request):
            return self._message(request, error.title, str(error), error.status, kind, near)
        content = {"error": str(error), **({"near": near} if kind else {})}
        return ReadableJson(content, status_code=error.status)

    async def no_such_address(self, request: Request, error: Exception) -> Response:
        sentence = "There is nothing at this address."
        if not wants_json(request):
            return self._message(request, "No such page", sentence, 404)
        near = nearest(request.scope["path"], _LISTS, count=3)
        return ReadableJson({"error": sentence, "near": near}, status_code=404)

    async def only_get(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "it is registered for these"
        if not wants_json(request):
            return PlainTextResponse(error.detail, status_code=error.status_code, headers=error.headers)
        sentence = f"{request.method} is not allowed: this address is read-only, use GET."
        return ReadableJson({"error": sentence}, status_code=error.status_code, headers=error.headers)

    async def failed(self, request: Request, error: Exception) -> Response:
        """A bug of the console."""
        log.error("the console failed at %s", request.scope["path"], exc_info=error)
        if wants_json(request):
            sentence = "The console failed: see its log, and please report it."
            return ReadableJson({"error": sentence}, status_code=500)
        return self._message(request, "The console failed", "See its log, and please report it.", 500)

    def _message(
        self,
        request: Request,
        title: str,
        sentence: str,
        status: int,
        kind: str = "",
        near: Sequence[str] = (),
    ) -> Response:
        """A page; one sentence for those who have not logged in, as pages show the state of the cluster."""
        viewer = viewer_of(request)
        if viewer is None and has_login(request):
            return PlainTextResponse(f"{sentence}\n", status)
        return self._renderer.message(title, sentence, status, kind, near, viewer=viewer)
