"""How we measure: contestants take turns, round after round, and the median of each is what counts.

On a small machine everything shares the cores, and the machine itself changes its mind. So nothing is
compared across runs: only numbers of one run, side by side, and their ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass
class Measured:
    """One contestant's figures, a figure a round."""

    figures: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    @property
    def spread(self) -> str:
        return f"{min(self.figures):,.0f}-{max(self.figures):,.0f}"


def alternate(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Measured]:
    """Run each contestant once a round, in turning order, so that none always goes first."""
    results = {name: Measured() for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            figure = contestants[name]()
            results[name].figures.append(figure)
            print(f"    round {number + 1} {name}: {figure:,.1f}", flush=True)
    return results
