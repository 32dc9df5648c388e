"""What a planted bug is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.sim.families import Family


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug: what is wrong, and where it is planted."""

    description: str
    targets: Callable[[], tuple[Any, ...]]
    """Makes the patches to apply; each is a context manager."""
    family: Family | None = None
    """The kind of run that catches it; None: any."""


def nothing(*args: Any, **keywords: Any) -> None:
    """Stands for what a bug leaves out."""
