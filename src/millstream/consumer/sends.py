"""What a core asks its driver to send, and to whom. The answer comes back under the same token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.client.targets import AnyNode as AnyNode
from millstream.client.targets import Node as Node
from millstream.wire.schema import Request


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates the consumer's group."""


Target = AnyNode | Coordinator | Node


@dataclass(frozen=True, slots=True)
class Send:
    """One request to send. ``build`` makes it for the version that client and broker agree on."""

    token: int
    target: Target
    build: Callable[[int], Request]
    request_type: type[Request]
    timeout_ms: int
