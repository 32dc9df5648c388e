"""Prints the demo: a few lines per step, commands to repeat it by hand, and the checks at the end."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final, Protocol

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_PICTURE_WIDTH: Final = 100
_INDENT: Final = (0, 0, 0, 3)
_WEB_FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Removed from pictures, so that they load nothing from other servers."""


class Proof(Protocol):
    """The numbers that a part of the demo ends with."""

    def checks(self) -> list[tuple[bool, str]]:
        """What must be true, each with a sentence."""


def holds(proof: Proof) -> bool:
    """Whether all checks are true."""
    return all(good for good, _ in proof.checks())


class Story:
    """Prints on standard output unless ``silent``, and records a picture of fixed width if asked to."""

    def __init__(self, *, silent: bool = False, picture: Path | None = None) -> None:
        self._console = Console(file=StringIO() if silent else None, highlight=False)
        self._paper: Console | None = None
        if picture is not None:
            self._paper = Console(
                file=StringIO(), highlight=False, record=True, width=_PICTURE_WIDTH, force_terminal=True
            )
        self._picture = picture
        self._steps = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started

    def draw(self) -> None:
        """Save the picture, if one was asked for."""
        if self._picture is not None and self._paper is not None:
            drawn = self._paper.export_svg(title="make demo")
            self._picture.write_text(_WEB_FONT.sub("", drawn))

    def _show(self, *parts: RenderableType) -> None:
        for console in filter(None, (self._console, self._paper)):
            console.print(*parts)
        sys.stdout.flush()

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self._show()
        self._show(f"[bold cyan]{self._steps}. {title}[/bold cyan]")

    def tell(self, text: str) -> None:
        """Print prose with rich's markup."""
        self._show(Padding(Text.from_markup(text), _INDENT, expand=False))

    def pause(self) -> None:
        """Print an empty line."""
        self._show()

    def by_hand(self, *commands: str) -> None:
        """Print commands, each on one line, so that it can be pasted."""
        for command in commands:
            line = Text.assemble(("$ ", "dim"), (command, "green"))
            self._console.print(Text("   ") + line, soft_wrap=True)
            if self._paper is not None:
                self._paper.print(Padding(line, _INDENT, expand=False))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Show a table; numbers are aligned to the right."""
        lines = [list(row) for row in rows]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(columns):
            is_number = all(isinstance(line[place], int) for line in lines)
            table.add_column(name, justify="right" if is_number else "left")
        for line in lines:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line))
        self._show(Padding(table, _INDENT, expand=False))

    def ownership(self, owners: Mapping[str, Sequence[int]]) -> None:
        """Show which member has which partitions."""
        for name, partitions in owners.items():
            squares = " ".join(f"[reverse] {partition} [/reverse]" for partition in partitions) or "none"
            self.tell(f"{name:<6} {squares}")

    def verdicts(self, proof: Proof) -> None:
        """Print the checks of a proof."""
        for good, text in proof.checks():
            mark, colour = ("✓", "green") if good else ("✗", "red")
            self.tell(f"[bold {colour}]{mark} {text}[/]")
