"""The JSON answers, under ``/api``: what the pages show, for scripts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from millstream.console.answers import NotThereError
from millstream.console.console import Console, NothingKnownError
from millstream.console.web.requests import BadRequestError, name_of, records_wanted
from millstream.suggestions import nearest

_ADDRESSES: Final = ("/api/overview", "/api/topics", "/api/groups", "/api/loads", "/healthz")
Answer = Callable[[Request], Awaitable[Mapping[str, Any]]]


class Json(JSONResponse):
    """JSON in UTF-8, readable for people too."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"


def routes(console: Console) -> list[Route]:
    """The addresses under ``/api``, and ``/healthz``."""

    async def overview(request: Request) -> Mapping[str, Any]:
        return await console.overview()

    async def topics(request: Request) -> Mapping[str, Any]:
        found = await console.overview()
        return {name: found[name] for name in ("age_s", "trouble", "refresh_s", "topics")}

    async def groups(request: Request) -> Mapping[str, Any]:
        found = await console.overview()
        return {name: found[name] for name in ("age_s", "trouble", "refresh_s", "groups")}

    async def loads(request: Request) -> Mapping[str, Any]:
        return await console.loads()

    async def topic(request: Request) -> Mapping[str, Any]:
        return await console.topic(name_of(request))

    async def records(request: Request) -> Mapping[str, Any]:
        return await console.records(name_of(request), records_wanted(request))

    async def group(request: Request) -> Mapping[str, Any]:
        return await console.group(name_of(request))

    async def health(request: Request) -> Mapping[str, Any]:
        return console.health()

    answers: Mapping[str, Answer] = {
        "/api/overview": overview,
        "/api/topics": topics,
        "/api/topics/{name}": topic,
        "/api/topics/{name}/records": records,
        "/api/groups": groups,
        "/api/groups/{name:path}": group,
        "/api/loads": loads,
        "/healthz": health,
    }
    return [Route(path, _as_json(answer), methods=["GET"]) for path, answer in answers.items()]


def is_asked_for(request: Request) -> bool:
    """Whether a request is for an address here, be there one or not: its errors are JSON, too."""
    path = request.url.path
    return path in ("/api", "/healthz") or path.startswith("/api/")


async def refused(request: Request, error: Exception) -> Json:
    """What is answered for an address that leads nowhere, or that can only be looked at."""
    assert isinstance(error, HTTPException), "it is registered for these"
    if error.status_code == HTTPStatus.NOT_FOUND:
        near = nearest(request.url.path, _ADDRESSES, count=3)
        return Json({"error": "This address leads nowhere.", "near": near}, status_code=404)
    sentence = f"{request.method} is not understood here: use GET."
    return Json({"error": sentence}, status_code=error.status_code, headers=error.headers)


async def failed(request: Request, error: Exception) -> Json:
    """What is answered for a defect of ours."""
    return Json({"error": "The console has failed: its log says why; please report it."}, status_code=500)


def _as_json(answer: Answer) -> Callable[[Request], Awaitable[Json]]:
    async def respond(request: Request) -> Json:
        try:
            return Json(await answer(request))
        except NotThereError as error:
            return Json({"error": str(error), "near": error.near}, status_code=404)
        except BadRequestError as error:
            return Json({"error": str(error)}, status_code=400)
        except NothingKnownError as error:
            return Json({"error": str(error)}, status_code=503)

    return respond
