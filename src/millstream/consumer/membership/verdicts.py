"""What a member does about each error that the coordinator answers with."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from millstream.errors import Action, ErrorCode, for_code


class Verdict(Enum):
    """The ways to go on after an error."""

    RETRY = auto()
    """The same request after a back-off."""
    LOOK_UP = auto()
    """The coordinator is somewhere else: find it, then the same request."""
    REJOIN = auto()
    """The group rebalances: take part."""
    FORGET_GENERATION = auto()
    """The group went on without this member, whose id may still be good: its partitions are lost."""
    FORGET_MEMBER = auto()
    """The coordinator does not know the member: its partitions are lost, and so is its id."""
    FAIL = auto()
    """The user must be told."""


_BY_ACTION: Final[Mapping[Action, Verdict]] = {
    Action.RETRY: Verdict.RETRY,
    Action.REFRESH_METADATA: Verdict.RETRY,
    Action.FIND_COORDINATOR: Verdict.LOOK_UP,
    Action.REJOIN: Verdict.REJOIN,
}

_BY_CODE: Final[Mapping[int, Verdict]] = {
    ErrorCode.ILLEGAL_GENERATION: Verdict.FORGET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.FORGET_MEMBER,
}


def verdict_on(code: int) -> Verdict:
    """What to do about an error code: as its action says, where rejoining has three degrees."""
    return _BY_CODE.get(code) or _BY_ACTION.get(for_code(code).action, Verdict.FAIL)


def is_passing(error: Exception) -> bool:
    """Whether a request that got no answer may get one on the next attempt.

    Everything that a network does is of this kind; what a broker or this process refuses is not.
    """
    return isinstance(error, OSError) or bool(getattr(error, "retriable", False))
