"""Random numbers for jitter, from a generator of our own: a program's seeded ``random`` stays untouched."""

from __future__ import annotations

import random
from typing import Final

_GENERATOR: Final = random.Random()


def chance() -> float:
    """A random number from 0 up to 1."""
    return _GENERATOR.random()


def between(low: float, high: float) -> float:
    """A random number from ``low`` to ``high``."""
    return _GENERATOR.uniform(low, high)
