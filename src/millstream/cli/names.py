"""What to say when a topic or a group is not there: the nearest name that is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from millstream.cli.outcome import CommandError


def no_such_topic(name: str, known: Iterable[str]) -> CommandError:
    """Make the error for a topic that does not exist."""
    hint = (
        _nearest(name, known)
        or f"create it with 'millstream topic create {name}', or see 'millstream topic list'"
    )
    return CommandError(f"there is no topic {name!r}: {hint}")


def no_such_group(name: str, known: Iterable[str]) -> CommandError:
    """Make the error for a group that does not exist."""
    hint = _nearest(name, known) or "see 'millstream group list'"
    return CommandError(f"there is no group {name!r}: {hint}")


def require_topics(wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first topic that does not exist."""
    there = set(known)
    for name in wanted:
        if name not in there:
            raise no_such_topic(name, there)


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
