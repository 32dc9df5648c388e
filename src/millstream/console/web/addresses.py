"""The paths of pages about one topic or one group."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

_DOTS: Final = (".", "..")


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
