"""How the demo tells what happens: a few lines for each step, and how to do the same by hand."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_PICTURE_WIDTH: Final = 100
_WEB_FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""A picture asks no other server for anything: what it is shown with has a font."""


class Story:
    """Prints on standard output; silent when only JSON is wanted. Any width, any terminal, or none."""

    def __init__(self, *, silent: bool = False, picture: Path | None = None) -> None:
        drawn: dict[str, Any] = {} if picture is None else {"record": True, "width": _PICTURE_WIDTH}
        self._console = Console(file=StringIO() if silent else None, highlight=False, **drawn)
        self._picture = picture
        self._steps = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long the demo has been running."""
        return time.monotonic() - self._started

    def draw(self) -> None:
        """Save all that was told as a picture, if one was asked for."""
        if self._picture is not None:
            drawn = self._console.export_svg(title="make demo")
            self._picture.write_text(_WEB_FONT.sub("", drawn))

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self._console.print()
        self._console.print(f"[bold cyan]{self._steps}. {title}[/bold cyan]")

    def tell(self, text: str) -> None:
        """Say something in prose; rich's markup works."""
        self._console.print(Padding(Text.from_markup(text), (0, 0, 0, 3), expand=False))
        sys.stdout.flush()

    def pause(self) -> None:
        """Leave a line free."""
        self._console.print()

    def by_hand(self, *commands: str) -> None:
        """Show how to do it oneself."""
        for command in commands:
            self._console.print(
                Padding(Text.assemble(("$ ", "dim"), (command, "green")), (0, 0, 0, 3), expand=False)
            )

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Show a table; numbers are aligned to the right."""
        lines = [list(row) for row in rows]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for place, name in enumerate(columns):
            is_number = all(isinstance(line[place], int) for line in lines)
            table.add_column(name, justify="right" if is_number else "left")
        for line in lines:
            table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))

    def ownership(self, owners: Mapping[str, Sequence[int]]) -> None:
        """Show which member has which partitions."""
        for name, partitions in owners.items():
            squares = " ".join(f"[reverse] {partition} [/reverse]" for partition in partitions) or "none"
            self.tell(f"{name:<6} {squares}")

    def verdict(self, good: bool, text: str) -> None:
        """Say how it ended."""
        mark, colour = ("✓", "green") if good else ("✗", "red")
        self._console.print(
            Padding(Text.from_markup(f"[bold {colour}]{mark} {text}[/]"), (0, 0, 0, 3), expand=False)
        )
