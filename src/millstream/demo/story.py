"""How the demo tells what happens: a few lines for each step, and how to do the same by hand."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_PICTURE_WIDTH: Final = 100
_INDENT: Final = (0, 0, 0, 3)
_WEB_FONT: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""A picture asks no other server for anything: what it is shown with has a font."""


class Story:
    """Prints on standard output; silent when only JSON is wanted. Any width, any terminal, or none.

    A picture is drawn beside that, and has a width of its own.
    """

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
        """Save all that was told as a picture, if one was asked for."""
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
        """Say something in prose; rich's markup works."""
        self._show(Padding(Text.from_markup(text), _INDENT, expand=False))

    def pause(self) -> None:
        """Leave a line free."""
        self._show()

    def by_hand(self, *commands: str) -> None:
        """Show how to do it oneself. A command is one line, however long: so it can be pasted."""
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

    def verdict(self, good: bool, text: str) -> None:
        """Say how it ended."""
        mark, colour = ("✓", "green") if good else ("✗", "red")
        self._show(Padding(Text.from_markup(f"[bold {colour}]{mark} {text}[/]"), _INDENT, expand=False))
