"""How a member reacts to each error code of the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from millstream.errors import Action, ErrorCode, for_code


class Reaction(Enum):
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
    """poll() must raise the error."""


_BY_ACTION: Final[Mapping[Action, Reaction]] = {
    Action.RETRY: Reaction.RETRY,
    Action.REFRESH_METADATA: Reaction.RETRY,
    Action.FIND_COORDINATOR: Reaction.LOOK_UP,
    Action.REJOIN: Reaction.REJOIN,
}

_BY_CODE: Final[Mapping[int, Reaction]] = {
    ErrorCode.ILLEGAL_GENERATION: Reaction.FORGET_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.FORGET_MEMBER,
}


def reaction_to(code: int) -> Reaction:
    """What to do about an error code: as its action says, where rejoining has three degrees."""
    return _BY_CODE.get(code) or _BY_ACTION.get(for_code(code).action, Reaction.FAIL)


def is_retriable(error: Exception) -> bool:
    """Whether a request that got no answer may get one on the next attempt.

    Everything that a network does is of this kind; what a broker or this process refuses is not.
    """
    return isinstance(error, OSError) or bool(getattr(error, "retriable", False))
