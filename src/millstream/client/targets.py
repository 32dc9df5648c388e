"""Which broker a request is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnyNode:
    """Whichever broker is least busy."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, by its id."""

    node_id: int


@dataclass(frozen=True, slots=True)
class Controller:
    """The broker that changes topics; any broker, which forwards the request, while it is unknown."""


@dataclass(frozen=True, slots=True)
class CoordinatorOf:
    """The broker that coordinates a group."""

    group_id: str


Target = AnyNode | Node | Controller | CoordinatorOf
