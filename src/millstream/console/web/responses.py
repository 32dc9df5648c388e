"""Responses: JSON for scripts, and pages made from templates that escape everything.

A page is complete when it is loaded. The script fetches the same page again and replaces what has changed, so
nothing is drawn in JavaScript.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

import millstream
from millstream.console.console import Console
from millstream.console.login.login import Viewer
from millstream.console.views import numbers
from millstream.console.views.previews import visible
from millstream.console.web.endpoints import Endpoint, Page, Values, group_url, topic_url
from millstream.terminal.output import count, size

TEMPLATES: Final = Path(__file__).parent / "templates"
_URLS: Final = {"topic": topic_url, "group": group_url}


class ReadableJson(JSONResponse):
    """Indented JSON in UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"


def wants_json(request: Request) -> bool:
    """Whether a request is for a JSON address, existing or not."""
    path = request.scope["path"]
    return path in ("/api", "/healthz") or path.startswith("/api/")


class PageRenderer:
    """Fills templates."""

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
            number=numbers.number,
            rate=numbers.rate,
            duration=numbers.duration,
            size=lambda value: numbers.NONE if value is None else size(value),
            count=count,
            partitions=numbers.partitions,
            or_dash=lambda value: numbers.NONE if value in (None, "") else value,
            visible=lambda value: visible(str(value)),
            topic_url=topic_url,
            group_url=group_url,
        )
        self._templates.globals.update(
            version=millstream.__version__,
            servers=console.settings.servers,
            chart=console.chart,
        )

    def page(
        self,
        endpoint: Endpoint,
        page: Page,
        answer: Values,
        more: Values,
        name: str,
        viewer: Viewer | None = None,
    ) -> HTMLResponse:
        """The page of an endpoint's answer; ``name`` is the topic or group of its path, if any.

        ``viewer``: who has logged in, and can log out.
        """
        frame = {
            "viewer": viewer,
            "title": page.title.format_map(answer),
            "section": page.section,
            "json_url": endpoint.path if page.url is None else f"/api{page.url(name)}",
        }
        return self._fill(page.template, {**answer, **more, **frame})

    def message(
        self,
        title: str,
        sentence: str,
        status: int,
        kind: str = "",
        near: Sequence[str] = (),
        *,
        viewer: Viewer | None = None,
    ) -> HTMLResponse:
        """A page with one sentence; ``near`` are names of topics or groups (``kind``) to link to."""
        url = _URLS.get(kind)
        links = [{"name": name, "url": url(name)} for name in near] if url is not None else []
        values: Values = {
            "viewer": viewer,
            "title": title,
            "section": "",
            "json_url": "/api/overview",
            "sentence": sentence,
            "near": links,
        }
        if sentence == self._console.sampler.current.trouble:
            values["trouble"] = None  # once is enough
        return self._fill("message.html", values, status)

    def login(self, csrf: str, following: str, sentence: str, status: int) -> HTMLResponse:
        """The form for logging in. It tells nothing about the cluster."""
        values = {"csrf": csrf, "following": following, "sentence": sentence}
        return HTMLResponse(self._templates.get_template("login.html").render(values), status)

    def _fill(self, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        text = self._templates.get_template(template).render({**self._console.freshness(), **values})
        return HTMLResponse(text.encode(errors="backslashreplace"), status_code=status)
