"""What a core asks its driver to send, to whom, and how long it waits before it sends again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.client.backoff import Backoff
from millstream.client.targets import AnyNode, CoordinatorOf, Node
from millstream.config import ClientConfig
from millstream.wire.schema import Request


@dataclass(frozen=True, slots=True)
class Send:
    """One request to send; the response comes back with its ``token``.

    ``build`` makes the request for the version that client and broker agree on, at most ``max_version``.
    """

    token: int
    target: AnyNode | CoordinatorOf | Node
    build: Callable[[int], Request]
    request_type: type[Request]
    timeout_ms: int
    max_version: int | None = None


RetryDelay = Callable[[int], int]
"""How many milliseconds to wait after a number of failures in a row."""


def retry_delay(config: ClientConfig, chance: Callable[[], float]) -> RetryDelay:
    """The delays of retry_backoff_ms and retry_backoff_max_ms. ``chance`` gives numbers from 0 to 1."""
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
    return lambda failures: backoff.delay_ms(failures, chance())


def no_jitter() -> float:
    """The chance that leaves delays as they are."""
    return 0.5
