"""The HTML pages: the same answers as under ``/api``, put into templates that escape everything.

A page is complete as it is loaded. The script only fetches the same page again and puts what has changed in
place: so there is one way to draw a thing, and none of it is in JavaScript.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

import millstream
from millstream.console.answers import NotThereError, Values
from millstream.console.console import Console, NothingKnownError
from millstream.console.views import wording
from millstream.console.views.showing import visible
from millstream.console.web.requests import BadRequestError, group_url, name_of, records_wanted, topic_url
from millstream.terminal.output import size

TEMPLATES: Final = Path(__file__).parent / "templates"

Page = Callable[[Request], Awaitable[HTMLResponse]]


class Renderer:
    """Fills templates, with what all of them use."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._templates = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            number=wording.number,
            rate=wording.rate,
            duration=wording.duration,
            size=lambda value: wording.NONE if value is None else size(value),
            count=wording.count,
            partitions=wording.partitions,
            or_dash=lambda value: wording.NONE if value in (None, "") else value,
            visible=lambda value: visible(str(value)),
            topic_url=topic_url,
            group_url=group_url,
        )
        self._templates.globals.update(
            version=millstream.__version__,
            servers=console.settings.servers,
            chart=console.chart,
        )

    def page(self, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """A page; ``values`` are an answer of the console's."""
        seen = self._console.seen()
        text = self._templates.get_template(template).render({**seen, **values})
        return HTMLResponse(text.encode(errors="backslashreplace"), status_code=status)

    def message(
        self, title: str, sentence: str, status: int, near: list[Values] | None = None
    ) -> HTMLResponse:
        """A page that says why there is no other."""
        values: Values = {"title": title, "sentence": sentence, "near": near or []}
        if sentence == self._console.sampler.current.trouble:
            values["trouble"] = None  # once is enough
        return self.page("message.html", values, status)


def routes(console: Console, renderer: Renderer) -> list[Route]:
    """The addresses of the pages."""

    async def overview(request: Request) -> HTMLResponse:
        internal = "internal" in request.query_params
        return renderer.page("overview.html", {**await console.overview(), "shows_internal": internal})

    async def topic(request: Request) -> HTMLResponse:
        name, wanted = name_of(request), records_wanted(request)
        found = await console.topic(name)
        if wanted.partition is None and len(found["partitions"]) == 1:
            wanted = type(wanted)(0, wanted.offset, wanted.count)
        listed = await console.records(name, wanted)
        paging = paging_of(found, listed)
        return renderer.page("topic.html", {**found, "listed": listed, "paging": paging})

    async def group(request: Request) -> HTMLResponse:
        return renderer.page("group.html", {**await console.group(name_of(request))})

    pages: Mapping[str, Page] = {"/": overview, "/topics/{name}": topic, "/groups/{name:path}": group}
    return [Route(path, _guarded(renderer, page), methods=["GET"]) for path, page in pages.items()]


def paging_of(topic: Values, listed: Values) -> Values:
    """Where older and newer records of the chosen partition begin; None where there are none, or no partition
    is chosen: offsets of several partitions have no common order.
    """
    if listed["partition"] is None:
        return {"older": None, "newer": None, "is_newest": True}
    one = next(each for each in topic["partitions"] if each["partition"] == listed["partition"])
    start, end, count = one["first_offset"] or 0, one["end_offset"] or 0, listed["count"]
    first = max(start, end - count if listed["offset"] is None else listed["offset"])
    after = first + count
    return {
        "older": max(start, first - count) if first > start else None,
        "newer": after if listed["offset"] is not None and after < end else None,
        "is_newest": listed["offset"] is None,
    }


def not_found(renderer: Renderer) -> Callable[[Request, Exception], Awaitable[HTMLResponse]]:
    """What is answered for an address that leads nowhere."""

    async def respond(request: Request, error: Exception) -> HTMLResponse:
        return renderer.message("No such page", "This address leads nowhere.", 404)

    return respond


def failed(renderer: Renderer) -> Callable[[Request, Exception], Awaitable[HTMLResponse]]:
    """What is answered for a defect of ours."""

    async def respond(request: Request, error: Exception) -> HTMLResponse:
        return renderer.message("The console has failed", "Its log says why; please report it.", 500)

    return respond


def _guarded(renderer: Renderer, page: Page) -> Page:
    async def respond(request: Request) -> HTMLResponse:
        try:
            return await page(request)
        except NotThereError as error:
            url = {"topic": topic_url, "group": group_url}.get(error.what)
            near = [] if url is None else [{"name": name, "url": url(name)} for name in error.near]
            return renderer.message(f"No such {error.what}", str(error), 404, near)
        except BadRequestError as error:
            return renderer.message("This makes no sense", str(error), 400)
        except NothingKnownError as error:
            return renderer.message("No data yet", str(error), 503)

    return respond
