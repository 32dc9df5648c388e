"""Numbers, rates and durations as text."""

from __future__ import annotations

from typing import Final

_DASH: Final = "\N{EN DASH}"
NONE: Final = _DASH
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def number(value: int | None) -> str:
    """``1,234,567``; a dash where there is none."""
    return NONE if value is None else f"{value:,}"


def rate(per_second: float | None) -> str:
    """Records per second, rounded for reading: ``0``, ``0.3``, ``12.5``, ``1,234``."""
    if per_second is None:
        return NONE
    if per_second == 0:
        return "0"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{max(per_second, 0.1):.1f}"


def duration(seconds: float | None) -> str:
    """``0 s``, ``45 s``, ``12 min``, ``3 h 20 min``, ``5 d``: two units at most."""
    if seconds is None:
        return NONE
    whole = max(0, round(seconds))
    for length, unit in _UNITS:
        if whole >= length:
            many, rest = divmod(whole, length)
            finer = _finer(rest, length) if many < 10 else ""
            return f"{many:,} {unit}{finer}"
    return f"{whole} s"


def _finer(rest: int, length: int) -> str:
    smaller, unit = {86_400: (3_600, "h"), 3_600: (60, "min"), 60: (1, "s")}[length]
    many = rest // smaller
    return f" {many} {unit}" if many else ""


def partitions(numbers: list[int]) -> str:
    """Partition numbers, with runs joined by a dash."""
    runs: list[list[int]] = []
    for each in sorted(numbers):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}{_DASH}{run[-1]}" for run in runs)
