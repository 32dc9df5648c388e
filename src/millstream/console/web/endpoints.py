"""What an endpoint is: a path, its JSON answer, and the page that shows the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from millstream.console.console import Console

Values = dict[str, Any]
_DOTS: Final = (".", "..")


async def _nothing(console: Console, request: Request, answer: Values) -> Values:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The HTML page of an endpoint."""

    path: str
    template: str
    title: str
    """``{name}`` is replaced by that value of the answer."""
    section: str = ""
    """What comes before the title in the navigation."""
    url: Callable[[str], str] | None = None
    """The page's path for a name, where it has one."""
    more: Callable[[Console, Request, Values], Awaitable[Values]] = _nothing
    """What only the page shows, beside the answer."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that answers with JSON, and its page if it has one."""

    path: str
    answer: Callable[[Console, Request], Awaitable[Values]]
    page: Page | None = None
    is_open: bool = False
    """Whether it can be read without a login, on a console that has one. Its page never can."""


def name_of(request: Request) -> str:
    """The topic or group that a path names."""
    name: str = request.path_params.get("name") or request.query_params.get("name", "")
    return name


def topic_url(name: str, **query: object) -> str:
    """The page of a topic."""
    return f"/topics/{quote(name, safe='')}" + _query(query)


def group_url(name: str) -> str:
    """The page of a group. A name of only dots goes into the query: browsers would resolve it in the path."""
    if name in _DOTS:
        return "/groups/" + _query({"name": name})
    return f"/groups/{quote(name, safe='')}"


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
