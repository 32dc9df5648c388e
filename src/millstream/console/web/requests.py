"""What a request asks for, out of its path and query; and the addresses of pages."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from starlette.requests import Request

from millstream.console.console import RecordsWanted
from millstream.console.records import MOST_RECORDS, USUAL_RECORDS

_DOTS: Final = (".", "..")
_MOST: Final = 2**63 - 1


class BadRequestError(Exception):
    """The query makes no sense; the message says which part of it."""


def topic_url(name: str, **query: object) -> str:
    """The page of a topic."""
    return f"/topics/{quote(name, safe='')}" + _query(query)


def group_url(name: str) -> str:
    """The page of a group. Its name may be anything: a browser would take a lone dot for a step."""
    if name in _DOTS:
        return "/groups/" + _query({"name": name})
    return f"/groups/{quote(name, safe='')}"


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def name_of(request: Request) -> str:
    """The topic or group that a path names."""
    name: str = request.path_params.get("name") or request.query_params.get("name", "")
    return name


def records_wanted(request: Request) -> RecordsWanted:
    """``?partition=0&offset=100&count=20``; each may be left out, as an empty field of a form is."""
    partition = _number(request, "partition", 2**31 - 1)
    offset = _number(request, "offset", _MOST)
    count = _number(request, "count", _MOST)
    if offset is not None and partition is None:
        raise BadRequestError("An offset belongs to a partition: give partition as well.")
    if count is None:
        count = USUAL_RECORDS
    return RecordsWanted(partition, offset, max(1, min(count, MOST_RECORDS)))


def _number(request: Request, name: str, most: int) -> int | None:
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        raise BadRequestError(f"{name} must be a number from 0 on, not {text[:40]!r}.")
    return int(text)
