"""Commands that the documentation shows can be typed: every one is read by the parser, none is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.help_examples import leaves

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LEAVES = leaves()


SHELL = re.compile(r"^```(?:bash)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def typed(page: Path) -> Iterator[str]:
    """The commands in blocks of shell. A shape of a command (cli.md has them) is nothing to type."""
    for block in SHELL.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.findall(r"(?:^|\$ |\| )(millstream [^|&]+)", line):
                if not re.search(r"[…\[]|TOPIC", command):
                    yield command.strip()


def mentioned(page: Path) -> Iterator[str]:
    """Commands in prose and tables, or their beginnings."""
    yield from re.findall(
        r"`(millstream (?:--context )?[a-z][^`|]+)`", SHELL.sub("", page.read_text(encoding="utf-8"))
    )


def found(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words lead to, and its arguments. A context may come first."""
    if words[0] == "--context":
        words = words[2:]
    if words[0] == "load" and tuple(words[:2]) not in LEAVES:
        words = ["load", "run", *words[1:]]
    length = 2 if tuple(words[:2]) in LEAVES else 1
    return LEAVES[tuple(words[:length])], words[length:]


TYPED = sorted({(page.name, line) for page in PAGES for line in typed(page)})
MENTIONED = sorted({(page.name, line) for page in PAGES for line in mentioned(page)})


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_a_documented_command_can_be_typed(page: str, line: str) -> None:
    command, arguments = found(shlex.split(line, comments=True)[1:])
    command.make_context("millstream", arguments).close()


@pytest.mark.parametrize(("page", "line"), MENTIONED)
def test_a_command_in_prose_has_its_options(page: str, line: str) -> None:
    words = shlex.split(line.replace("…", ""))[1:]
    groups = {path[0] for path in LEAVES if len(path) > 1}
    if words[0] in groups and tuple(words[:2]) not in LEAVES and words[0] != "load":
        assert len(words) == 1, "it names a group of commands, and no command of it"
        return
    command, arguments = found(words)
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= known


def test_there_are_many() -> None:
    assert len(TYPED) > 20 and len(MENTIONED) > 40
