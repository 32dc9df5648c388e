"""Chance for back-offs, from a generator of our own: the one of the program that uses us is neither read nor
moved, so that a seed it has set gives it the same numbers as ever.
"""

from __future__ import annotations

import random
from typing import Final

_GENERATOR: Final = random.Random()


def chance() -> float:
    """A number from 0 up to 1."""
    return _GENERATOR.random()


def between(low: float, high: float) -> float:
    """A number from ``low`` to ``high``."""
    return _GENERATOR.uniform(low, high)
