"""What a core asks its driver to send, and to whom. The answer comes back under the same token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.wire.schema import Request


@dataclass(frozen=True, slots=True)
class AnyNode:
    """Whichever broker is least busy."""


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates the consumer's group."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, by its id."""

    node_id: int


Target = AnyNode | Coordinator | Node


@dataclass(frozen=True, slots=True)
class Send:
    """One request to send. ``build`` makes it for the version that client and broker agree on."""

    token: int
    target: Target
    build: Callable[[int], Request]
    request_type: type[Request]
    timeout_ms: int
