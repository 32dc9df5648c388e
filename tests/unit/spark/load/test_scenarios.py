"""docs/load-scenarios.md names tests that are there, for each of its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[3]
PAGE = TESTS.parent / "docs" / "load-scenarios.md"
ROWS = {int(row[1]): row[0] for row in re.finditer(r"^\| (\d+) \|.*$", PAGE.read_text(), re.MULTILINE)}


def test_every_number_is_there() -> None:
    assert sorted(ROWS) == list(range(1, 24))


@pytest.mark.parametrize("number", sorted(ROWS))
def test_its_tests_are_there(number: int) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", ROWS[number])
    assert any(re.match(rf"test_lesson_(\d+_and_)?{number}_", test) for _, test in named), "one by its number"
    for path, test in named:
        assert re.search(rf"def {test}\(", (TESTS / path).read_text()), f"{path} has no {test}"
