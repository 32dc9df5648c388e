"""Tables for terminals of any width."""

from __future__ import annotations

import pytest
from rich.console import Console

from millstream.terminal.output import rich_table

COLUMNS = ("topic", "partition", "committed", "end", "lag", "client")
ROW = ("a-topic-with-a-long-name-as-they-come", 3, 1_234_567, 1_234_999, 432, "the-client")


def shown(width: int, row: tuple[object, ...] = ROW) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(rich_table(COLUMNS, [row, row], width=width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", range(30, 200, 7))
def test_no_word_of_the_header_and_no_number_is_broken(width: int) -> None:
    lines = shown(width)
    assert max(map(len, lines)) <= max(width, len("committed  ") + len(ROW[0]))
    words = " ".join(lines).split()
    assert set(COLUMNS) <= set(words)
    assert {"1234567", "1234999", "432"} <= set(words)


def test_a_narrow_terminal_has_one_field_a_line() -> None:
    lines = shown(60)
    assert lines[0].split() == ["topic", ROW[0]]
    assert lines[1].split() == ["partition", "3"]
    assert lines[6] == "", "the next row is a block of its own"


def test_a_wide_one_has_a_row_a_line() -> None:
    lines = [line for line in shown(100) if line]
    assert lines[0].split() == list(COLUMNS)
    assert lines[2].split() == list(map(str, ROW))


def test_what_looks_like_markup_is_shown() -> None:
    assert "[bold]" in " ".join(shown(200, ("[bold]", 1, 2, 3, 4, None)))
