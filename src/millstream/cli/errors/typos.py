"""Decides whether a name is a typo of an existing one.

Errors suggest the nearest name generously, as the name is wrong in any case. The rule here is stricter: a
name that is taken for a typo stops a command that could have continued.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_WORDS: Final = re.compile(r"[._-]+")
_SHORT: Final = 4
"""Shorter names are too near to each other to say anything."""
_LONG: Final = 8


def typo_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is most likely a typo of; None if it is probably intended."""
    near = [(edits(name.casefold(), other.casefold()), other) for other in known if _is_typo(name, other)]
    return min(near)[1] if near else None


def _is_typo(name: str, other: str) -> bool:
    if name == other or _are_variants(name, other):
        return False
    shorter = min(len(name), len(other))
    most = 0 if shorter < _SHORT else 1 if shorter < _LONG else 2
    if abs(len(name) - len(other)) > most:
        return False
    return edits(name.casefold(), other.casefold()) <= most


def _are_variants(name: str, other: str) -> bool:
    """Names that are similar on purpose: ``orders-1`` and ``orders-2``, ``eu.orders`` and ``us.orders``."""
    if re.sub(r"\D", "", name) != re.sub(r"\D", "", other):
        return True
    words, others = _WORDS.split(name), _WORDS.split(other)
    if len(words) != len(others) or len(words) == 1:
        return False
    differing = [pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]]
    return bool(differing) and all(max(map(len, pair)) <= 2 for pair in differing)


def edits(name: str, other: str) -> int:
    """The edit distance: letters to insert, delete, replace or swap with a neighbour."""
    before: list[int] = []
    above = list(range(len(other) + 1))
    for row, letter in enumerate(name, start=1):
        here = [row]
        for column, wanted in enumerate(other, start=1):
            cost = min(above[column] + 1, here[-1] + 1, above[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and name[row - 2] == wanted and letter == other[column - 2]:
                cost = min(cost, before[column - 2] + 1)
            here.append(cost)
        before, above = above, here
    return above[-1]
