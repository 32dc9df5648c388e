"""Values of a membership: its identity, its events for the driver, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.consumer.assignors.base import NO_GENERATION
from millstream.errors import MillstreamError
from millstream.model import TopicPartition

Partitions = tuple[TopicPartition, ...]
"""Partitions in order, each once."""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a member is, as every request to the coordinator and every commit says it."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


# ---- events: what has happened, in order ----


@dataclass(frozen=True, slots=True)
class Revoke:
    """Give these up: stop delivering them, commit if offsets are committed automatically, call on_revoked.

    Then call ``callbacks_done``. Until then they are owned, and may be committed.
    """

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost:
    """Everything is gone, and may have a new owner already: drop ``dropped`` at once, whatever the user does.

    In the next poll(), call on_lost for ``partitions``, if there are any, and then ``callbacks_done``. Those
    of a Revoke whose callback has not run yet are only dropped: call on_lost for that event, too, instead of
    on_revoked.
    """

    partitions: Partitions
    reason: str
    dropped: Partitions = ()


@dataclass(frozen=True, slots=True)
class Assigned:
    """These are the member's now: ``added`` are new and start at their committed offsets. Call on_assigned.

    Then call ``callbacks_done``. ``added`` may be empty: on_assigned is called for every rebalance.
    """

    added: Partitions
    partitions: Partitions
    generation_id: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The next poll() must raise this error, and then call ``error_raised``."""

    error: MillstreamError


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """Requests to the coordinator go to this broker, on a connection of their own."""

    node: CoordinatorNode


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """Close the connection to the coordinator; what was in flight there has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsWatched:
    """The group's leader needs the metadata of these topics now, and from now on: see ``update_cluster``."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsNeeded:
    """A member with a pattern joins once it knows the topics of now: answer with ``topics_refreshed``."""


@dataclass(frozen=True, slots=True)
class JoinStarted:
    """The member joins or rejoins the group, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is part of this generation; its assignment follows."""

    generation_id: int
    member_id: str
    leads: bool


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left the group, or was no member any more."""

    reason: str


CallbackEvent = Revoke | Lost | Assigned
"""The events that run the user's code, and that ``callbacks_done`` must follow, one call for each."""

Event = (
    CallbackEvent
    | Failed
    | CoordinatorFound
    | CoordinatorLost
    | TopicsWatched
    | TopicsNeeded
    | JoinStarted
    | Joined
    | Left
)


# ---- what it waits for ----


class Wait(Enum):
    """What a membership waits for; the value says it in words."""

    NOTHING = "the group is settled"
    SUBSCRIPTION = "nothing is subscribed"
    POLL = "poll() must be called"
    COORDINATOR = "the group's coordinator has not been found"
    RETRY = "the coordinator could not answer; the request is repeated"
    CALLBACKS = "the rebalance callbacks must finish, inside poll()"
    MEMBERS = "the coordinator waits for the other members to join"
    METADATA = "this member leads the group and waits for the metadata of its topics"
    LEADER = "the group's leader must send the assignment"
    LEAVE = "the coordinator must confirm that this member has left"
    ERROR = "the group refused this member"
    CLOSED = "the consumer is closed"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a membership waits for, since when, and what is known about the cause."""

    what: Wait
    since_ms: int | None
    detail: str = ""

    def words(self, now_ms: int) -> str:
        """One sentence without its full stop, for ``diagnose()``."""
        detail = f" ({self.detail})" if self.detail else ""
        if self.since_ms is None or self.what in (Wait.NOTHING, Wait.SUBSCRIPTION, Wait.CLOSED):
            return f"{self.what.value}{detail}"
        return f"{self.what.value}, for {max(0, now_ms - self.since_ms) / 1000:.1f} s now{detail}"
