"""How long to wait after failures: exponentially longer, with jitter so that clients do not march in step."""

from __future__ import annotations

from dataclasses import dataclass

_MULTIPLIER = 2
_JITTER = 0.2
_MAX_DOUBLINGS = 32
"""Beyond this every sensible maximum is reached; it keeps the power a small number."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """``initial_ms`` after the first failure, twice that after the second, and so on up to ``max_ms``."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """The wait after so many failures in a row; ``chance`` is a random number from 0 to 1."""
        if failures <= 0:
            return 0
        doublings = min(failures - 1, _MAX_DOUBLINGS)
        spread = 1 - _JITTER + 2 * _JITTER * chance
        return int(min(self.initial_ms * _MULTIPLIER**doublings * spread, self.max_ms))
