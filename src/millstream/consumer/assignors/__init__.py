"""Partition assignors: how a group's leader divides partitions among the members. No I/O, no clock."""

from __future__ import annotations

from millstream.consumer.assignors.base import (
    NO_GENERATION,
    Assignment,
    Assignor,
    ClusterView,
    Members,
    RebalanceProtocol,
    Subscription,
)
from millstream.consumer.assignors.range import RangeAssignor
from millstream.consumer.assignors.registry import (
    AssignorSpec,
    common_protocol,
    resolve_assignors,
)
from millstream.consumer.assignors.roundrobin import RoundRobinAssignor
from millstream.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "AssignorSpec",
    "ClusterView",
    "CooperativeStickyAssignor",
    "Members",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "common_protocol",
    "resolve_assignors",
]
