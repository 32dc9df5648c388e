"""A failing sequence made small: steps are left out for as long as the same difference stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.kafka.differential.lockstep import Difference, Parted
from tests.kafka.differential.values import Step


def shrink(
    steps: Sequence[Step],
    found: Difference,
    run: Callable[[Sequence[Step]], Difference | Parted | None],
    most_runs: int = 80,
) -> tuple[list[Step], Difference]:
    """Drop halves, then quarters, down to single steps; at most so many runs."""
    best, difference = list(steps[: found.index + 1]), found
    size = max(1, len(best) // 2)
    runs = 0
    while size >= 1:
        start, shorter = 0, False
        while start < len(best) - 1 and runs < most_runs:
            candidate = best[:start] + best[start + size :]
            runs += 1
            again = run(candidate) if candidate else None
            if isinstance(again, Difference) and again.signature == found.signature:
                best, difference, shorter = candidate[: again.index + 1], again, True
            else:
                start += size
        if not shorter or runs >= most_runs:
            size //= 2
    return best, difference
