"""Requests that the console cannot answer: each error has an HTTP status and a title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class ConsoleError(Exception):
    """A request that is refused; the message is a sentence for the user."""

    status: ClassVar[int]
    title: str


class BadRequestError(ConsoleError):
    """The query is wrong; the message names the parameter."""

    status = 400
    title = "Bad request"


class NotFoundError(ConsoleError):
    """There is no such topic, group or partition. ``near`` are similar names."""

    status = 404

    def __init__(self, kind: str, name: str, near: Sequence[str] = ()) -> None:
        super().__init__(f"There is no {kind} {name!r}.")
        self.title = f"No such {kind}"
        self.kind = kind
        self.near = list(near)


class NoDataError(ConsoleError):
    """The brokers have not answered yet; the message says why, and what to do."""

    status = 503
    title = "No data yet"
