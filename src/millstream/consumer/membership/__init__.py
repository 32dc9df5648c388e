"""Group membership, as a pure core: the client side of Kafka's classic group protocol."""

from __future__ import annotations

from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.phases import ALLOWED, MemberPhase, mermaid
from millstream.consumer.membership.values import (
    Assigned,
    CallbackEvent,
    CoordinatorFound,
    CoordinatorLost,
    CoordinatorNode,
    Event,
    Failed,
    GroupMetadata,
    Joined,
    JoinStarted,
    Left,
    Lost,
    Partitions,
    Revoke,
    TopicsWatched,
    Wait,
    Waiting,
)
from millstream.consumer.membership.views import CommitIdentity

__all__ = [
    "ALLOWED",
    "Assigned",
    "CallbackEvent",
    "CommitIdentity",
    "CoordinatorFound",
    "CoordinatorLost",
    "CoordinatorNode",
    "Event",
    "Failed",
    "GroupMetadata",
    "JoinStarted",
    "Joined",
    "Left",
    "Lost",
    "MemberPhase",
    "Membership",
    "Partitions",
    "Revoke",
    "TopicsWatched",
    "Wait",
    "Waiting",
    "mermaid",
]
