"""Output of commands: tables on a terminal, aligned columns in a pipe, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import RenderableType

Row = Sequence[object]

_FOLDED: Final = 12
"""The least width of a column of texts."""


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Print rows under their columns. A column of numbers is aligned to the right; None prints as a dash."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console()
        console.print(rich_table(columns, rows, width=console.width))
        return
    texts = [[_cell(cell) for cell in row] for row in rows]
    _print_plain(columns, texts, [_is_numeric([row[place] for row in rows]) for place in range(len(columns))])


def print_lines(columns: Sequence[str], rows: Sequence[Row], *, none: str) -> None:
    """Print a list: a table on a terminal, and only the first column in a pipe; ``none`` when it is empty."""
    if not rows:
        say(none)
    elif sys.stdout.isatty():
        print_table(columns, rows)
    else:
        for row in rows:
            print(_cell(row[0]))


def print_deleted(noun: str, names: Sequence[str], *, as_json: bool) -> None:
    """Print what was deleted, each name once."""
    deleted = list(dict.fromkeys(names))
    if as_json:
        print_json({"deleted": deleted})
    else:
        for name in deleted:
            print(f"deleted {noun} {name}")


def print_done(kind: str, name: str, what: str, *, as_json: bool) -> None:
    """Print what was done to one thing: ``ann: stored``, or ``{"user": "ann", "stored": true}``."""
    if as_json:
        print_json({kind: name, what: True})
    else:
        print(f"{name}: {what}")


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair a line."""
    print(field_lines(fields))


def field_lines(fields: Mapping[str, object]) -> str:
    """Names and values, one pair a line."""
    width = max(map(len, fields), default=0)
    return "\n".join(f"{name:<{width}}  {_cell(value)}".rstrip() for name, value in fields.items())


def say(message: str) -> None:
    """Print a remark on standard error, only on a terminal."""
    if sys.stderr.isatty():
        print(message, file=sys.stderr, flush=True)


def count(number: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``10,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """A number of bytes with a unit: ``1.5 MiB``."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def time_text(timestamp_ms: int) -> str:
    """A record's timestamp as ISO 8601 in UTC; a dash where there is none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # beyond the year 9999
        return f"@{timestamp_ms}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_numeric(cells: Sequence[object]) -> bool:
    return any(isinstance(cell, int) for cell in cells) and all(
        isinstance(cell, int | None) for cell in cells
    )


def _cell(cell: object) -> str:
    return "-" if cell is None or cell == "" else str(cell)


def _print_plain(columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    lines = [[name.upper().replace(" ", "-") for name in columns], *texts]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells).rstrip())


def rich_table(
    columns: Sequence[str], rows: Sequence[Row], *, width: int, optional: Sequence[str] = ()
) -> RenderableType:
    """Rows as a table; if it is too wide, without ``optional`` columns, or else as one block per row."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    texts = [[_cell(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[place] for row in rows]) for place in range(len(columns))]
    least = [
        _least_width(name, [line[place] for line in texts], right)
        for place, (name, right) in enumerate(zip(columns, numeric, strict=True))
    ]
    if sum(least) + 3 * len(columns) - 1 > width:
        spare = next((columns.index(name) for name in optional if name in columns), None)
        if spare is not None:
            kept = [[*line[:spare], *line[spare + 1 :]] for line in (columns, *rows)]
            return rich_table([str(name) for name in kept[0]], kept[1:], width=width, optional=optional)
        blocks = (field_lines(dict(zip(columns, line, strict=True))) for line in texts)
        return Text("\n\n".join(blocks) + "\n")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right, narrowest in zip(columns, numeric, least, strict=True):
        table.add_column(
            name, justify="right" if right else "left", overflow="fold", no_wrap=right, min_width=narrowest
        )
    for line in texts:
        table.add_row(*map(Text, line))  # Text: values may look like markup
    return table


def _least_width(name: str, cells: Sequence[str], is_numeric: bool) -> int:
    """The least width of a column: numbers are not folded, texts may be."""
    longest = max(map(len, cells), default=0)
    return max(len(name), longest if is_numeric else min(longest, _FOLDED))
