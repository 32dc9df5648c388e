"""Exponential back-off with jitter, so that clients do not retry in step. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_MULTIPLIER = 2
_JITTER = 0.2
_MAX_DOUBLINGS = 32
"""More doublings would exceed every sensible maximum."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """``initial_ms`` after the first failure, twice that after the second, and so on up to ``max_ms``."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """The wait after ``failures`` in a row; ``chance`` is a random number from 0 to 1."""
        if failures <= 0:
            return 0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        spread = 1 - _JITTER + 2 * _JITTER * chance
        return int(min(self.initial_ms * _MULTIPLIER**doublings * spread, self.max_ms))
