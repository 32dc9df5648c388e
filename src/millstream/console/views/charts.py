"""The chart of a group's lag, as paths of an inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.console.views.sampling import LagPoint

_MARGIN: Final = 2.0
"""Room for the width of the line at the top and the bottom."""


@dataclass(frozen=True, slots=True)
class Chart:
    """SVG paths in a box of ``width`` by ``height``; time runs to the right."""

    width: int
    height: int
    line: str
    area: str
    highest: int
    seconds: float
    """From the first point to the last."""


def lag_chart(
    points: Sequence[LagPoint], *, gap_ms: int, width: int = 600, height: int = 120
) -> Chart | None:
    """The chart of these points; None for fewer than two. The line is broken at pauses."""
    if len(points) < 2:
        return None
    first_ms, last_ms = points[0].at_ms, points[-1].at_ms
    highest = max(point.lag for point in points)
    span_ms = max(1, last_ms - first_ms)
    room = height - 2 * _MARGIN

    def place(point: LagPoint) -> tuple[float, float]:
        across = (point.at_ms - first_ms) / span_ms * width
        return across, height - _MARGIN - (point.lag / highest * room if highest else 0.0)

    runs = [[place(point) for point in run] for run in _runs(points, gap_ms)]
    return Chart(
        width=width,
        height=height,
        line=" ".join(_path(run) for run in runs),
        area=" ".join(_closed(run, height) for run in runs),
        highest=highest,
        seconds=(last_ms - first_ms) / 1000,
    )


def _runs(points: Sequence[LagPoint], gap_ms: int) -> list[list[LagPoint]]:
    runs: list[list[LagPoint]] = []
    for point in points:
        if runs and point.at_ms - runs[-1][-1].at_ms <= gap_ms:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _path(places: Sequence[tuple[float, float]]) -> str:
    if len(places) == 1:  # a line of no length, which round ends make a dot
        places = [places[0], places[0]]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _closed(places: Sequence[tuple[float, float]], height: int) -> str:
    return f"{_path(places)}L{places[-1][0]:.1f} {height}L{places[0][0]:.1f} {height}Z"
