"""Changes that users with the role ``change`` can make: create and delete topics, and move groups.

Each is a form of the console with the session's token. What destroys something needs its name, typed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from millstream.admin import Admin
from millstream.console.console import Console
from millstream.console.errors import BadRequestError, ConsoleError
from millstream.console.login.users import Role
from millstream.console.web.access import RefusedFormError, form_of_viewer
from millstream.console.web.endpoints import group_url
from millstream.errors import MillstreamError

log = logging.getLogger(__name__)

_POSITIONS: Final = ("earliest", "latest")
_MOST_PARTITIONS: Final = 10_000


class ChangeFailedError(ConsoleError):
    """The brokers did not make a change; the message is theirs."""

    status = 409
    title = "Not changed"


class Changes:
    """The addresses of all changes. None is there on a console without a login."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        """Only POST: a link cannot change anything."""
        return [
            Route("/change/create-topic", self.create_topic, methods=["POST"]),
            Route("/change/delete-topic", self.delete_topic, methods=["POST"]),
            Route("/change/move-group", self.move_group, methods=["POST"]),
        ]

    async def create_topic(self, request: Request) -> Response:
        """Create a topic with so many partitions, or with the broker's number."""
        user, form = await _changing(request)
        name, partitions = form.get("name", "").strip(), _partitions(form.get("partitions", ""))
        if not name:
            raise BadRequestError("A topic needs a name.")
        await self._make(lambda admin: admin.create_topic(name, partitions))
        log.warning("the user %s of the console has created the topic %s", user, name)
        return RedirectResponse("/", 303)

    async def delete_topic(self, request: Request) -> Response:
        """Delete a topic with all its records."""
        user, form = await _changing(request)
        name = _confirmed(form, "topic")
        _, snapshot = await self._console.view()
        if snapshot.topic(name).internal:
            raise ChangeFailedError(f"{name} is an internal topic: the console does not delete it.")
        await self._make(lambda admin: admin.delete_topics(name))
        log.warning("the user %s of the console has deleted the topic %s", user, name)
        return RedirectResponse("/", 303)

    async def move_group(self, request: Request) -> Response:
        """Move a group without members to the beginning or the end of what it has committed."""
        user, form = await _changing(request)
        name, position = _confirmed(form, "group"), form.get("to", "")
        if position not in _POSITIONS:
            raise BadRequestError(f"A group is moved to {' or '.join(_POSITIONS)}.")
        _, snapshot = await self._console.view()
        snapshot.group(name)  # raises NotFoundError
        await self._make(lambda admin: admin.reset_offsets(name, position))
        log.warning("the user %s of the console has moved the group %r to %s", user, name, position)
        return RedirectResponse(group_url(name), 303)

    async def _make(self, change: Callable[[Admin], object]) -> None:
        try:
            await self._console.change(change)
        except MillstreamError as error:
            raise ChangeFailedError(f"{error}") from error


async def _changing(request: Request) -> tuple[str, dict[str, str]]:
    """Return who makes a change, and the form. Raises a ConsoleError for all who may not."""
    viewer, form = await form_of_viewer(request)
    if viewer.role is not Role.CHANGE:
        raise RefusedFormError(
            f"{viewer.user} may only look: see 'millstream console-user add --help' for --role change."
        )
    return viewer.user, form


def _confirmed(form: dict[str, str], kind: str) -> str:
    """Return the name in a form, if it was typed again."""
    name = form.get("name", "")
    if not name or form.get("confirm", "") != name:
        raise BadRequestError(f"Type the name of the {kind} to confirm: nothing was changed.")
    return name


def _partitions(text: str) -> int:
    """Return a number of partitions; -1 for the broker's."""
    text = text.strip()
    if not text:
        return -1
    if not (text.isascii() and text.isdigit()) or len(text) > 5 or not 1 <= int(text) <= _MOST_PARTITIONS:
        raise BadRequestError(f"partitions must be a number from 1 to {_MOST_PARTITIONS}, not {text[:40]!r}.")
    return int(text)
