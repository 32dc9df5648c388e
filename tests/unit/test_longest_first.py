"""Files that take minutes come first, and are there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.longest_first import LONGEST, TESTS, longest_first


def item(name: str, number: int) -> Any:
    return SimpleNamespace(path=Path(TESTS, name), number=number)


def test_the_longest_files_are_there() -> None:
    assert [name for name in LONGEST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_the_longest_come_first_and_others_keep_their_order() -> None:
    items = [
        item("unit/b.py", 0),
        item(LONGEST[1], 0),
        item("unit/a.py", 0),
        item(LONGEST[0], 0),
        item(LONGEST[0], 1),
    ]
    wanted = [items[3], items[4], items[1], items[0], items[2]]
    longest_first(items)
    assert items == wanted


def test_make_test_keeps_that_order() -> None:
    assert "--dist loadfile --no-loadscope-reorder" in (TESTS.parent / "Makefile").read_text()
