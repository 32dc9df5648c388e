"""Errors about topics and groups that do not exist, with the nearest name that does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.cli.errors.typos import typo_of
from millstream.errors import GroupIdNotFoundError, UnknownTopicOrPartitionError
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import CommandError, warn

if TYPE_CHECKING:
    from millstream.admin import Admin


@contextmanager
def hints_for_topics(admin: Admin, wanted: Iterable[str], otherwise: str | None = None) -> Iterator[None]:
    """Reword a broker's "unknown topic": name the nearest topic, or how to create it.

    ``otherwise`` replaces the hint on creating it.
    """
    try:
        yield
    except UnknownTopicOrPartitionError:
        require_topics(wanted, admin.list_topics(internal=True), otherwise)
        raise


@contextmanager
def hints_for_groups(admin: Admin, wanted: Iterable[str]) -> Iterator[None]:
    """Reword a broker's "unknown group": name the nearest group."""
    try:
        yield
    except GroupIdNotFoundError as error:
        known = _groups(admin)
        for name in wanted:
            if name not in known:
                hint = did_you_mean(name, known, show=repr) or "see 'millstream group list'"
                raise CommandError(f"there is no group {name!r}: {hint}") from error
        raise


@contextmanager
def hints_for_a_new_group(admin: Admin, name: str) -> Iterator[None]:
    """Allow a reset of a group that does not exist yet, as Kafka does, but warn of a likely typo.

    Where the group must exist, the error names the nearest one.
    """
    known = _groups(admin)
    try:
        yield
    except GroupIdNotFoundError as error:
        if name in known:
            raise
        hint = did_you_mean(name, known, show=repr) or "see 'millstream group list'"
        raise CommandError(
            f"there is no group {name!r}: {hint}; for a new group, add --topic TOPIC"
        ) from error
    near = None if name in known else typo_of(name, known)
    if near is not None:
        warn(f"there was no group {name!r} before: did you mean {near!r}?")


def require_topics(wanted: Iterable[str], known: Iterable[str], otherwise: str | None = None) -> None:
    """Raise for the first topic that does not exist."""
    there = set(known)
    for name in wanted:
        if name not in there:
            otherwise = otherwise or f"create it with 'millstream topic create {name}'"
            hint = did_you_mean(name, there, show=repr) or otherwise
            raise CommandError(f"there is no topic {name!r}: {hint}")


def _groups(admin: Admin) -> list[str]:
    return [group.group_id for group in admin.list_groups()]
