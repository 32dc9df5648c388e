"""RESULTS.md: what was measured, where, and at which commit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the report."""

    title: str
    text: str


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "-|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def ratio(ours: float, theirs: float) -> str:
    return f"**{ours / theirs:.2f}x**"


def write(sections: Iterable[Section]) -> None:
    """Replace the sections that were measured; keep the others as they were."""
    kept = read()
    for section in sections:
        kept[section.title] = f"{section.text}\n\n_{_where()}_"
    parts = ["# Results", _PREFACE, *(f"## {title}\n\n{text}" for title, text in kept.items())]
    RESULTS.write_text("\n\n".join(parts) + "\n")


_PREFACE = (
    "Written by `make bench`. Contestants run in turns on one machine, and medians are compared within a run "
    "only: on another machine the figures differ, the ratios should not by much."
)


def read() -> dict[str, str]:
    """The text of each section, by its title."""
    if not RESULTS.exists():
        return {}
    pieces = RESULTS.read_text().split("\n## ")[1:]
    return {title: text.strip() for title, _, text in (piece.partition("\n") for piece in pieces)}


def _where() -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    cores = os.cpu_count()
    day = datetime.now(UTC).date().isoformat()
    return (
        f"{day}, commit {commit or 'unknown'}, {platform.machine()} with {cores} cores, "
        f"Linux {platform.release()}, Python {platform.python_version()}"
    )
