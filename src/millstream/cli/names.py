"""What to say when a topic or a group is not there: the nearest name that is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.cli.outcome import CommandError
from millstream.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from millstream.admin import Admin


@contextmanager
def hints_for_topics(admin: Admin, wanted: Iterable[str]) -> Iterator[None]:
    """Turn a broker's "no such topic" into one that names the nearest topic, or how to make it."""
    try:
        yield
    except UnknownTopicOrPartitionError:
        require_topics(wanted, admin.list_topics(internal=True))
        raise


@contextmanager
def hints_for_groups(admin: Admin, wanted: Iterable[str]) -> Iterator[None]:
    """Turn a broker's "no such group" into one that names the nearest group."""
    try:
        yield
    except GroupIdNotFoundError as error:
        known = [group.group_id for group in admin.list_groups()]
        for name in wanted:
            if name not in known:
                hint = _nearest(name, known) or "see 'millstream group list'"
                raise CommandError(f"there is no group {name!r}: {hint}") from error
        raise


def require_topics(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first topic that does not exist."""
    there = set(known)
    for name in wanted:
        if name not in there:
            hint = _nearest(name, there) or f"create it with 'millstream topic create {name}'"
            raise CommandError(f"there is no topic {name!r}: {hint}")


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
