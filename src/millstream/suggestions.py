"""Suggestions for a misspelled name: the nearest known names, and "did you mean …?"."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable


def nearest(word: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return at most ``count`` of the known names that are like ``word``, the best first.

    ``cutoff`` is how alike they must be: 0.0 takes anything, 1.0 only the word itself.
    """
    return difflib.get_close_matches(word, sorted(known), n=count, cutoff=cutoff)


def did_you_mean(
    word: str, known: Iterable[str], *, show: Callable[[str], str] = str, cutoff: float = 0.6
) -> str:
    """Return ``did you mean NAME?``, with the name as ``show`` writes it; empty if none is near."""
    near = nearest(word, known, cutoff=cutoff)
    return f"did you mean {show(near[0])}?" if near else ""
