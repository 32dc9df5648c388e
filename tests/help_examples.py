"""The examples in the help of commands, as tests read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from millstream.cli.app import app


def leaves() -> dict[tuple[str, ...], Any]:
    """All commands that can be run, by the words that lead to them."""
    return dict(_leaves(get_command(app), ()))


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from _leaves(each, (*path, name))


def all_examples() -> list[str]:
    """Those of all commands and groups of commands, each once."""
    return list(dict.fromkeys(line for text in _texts(get_command(app)) for line in examples(text)))


def _texts(command: Any) -> Iterator[str]:
    yield command.help
    for each in getattr(command, "commands", {}).values():
        yield from _texts(each)


def examples(text: str) -> list[str]:
    """The examples in one help text: a line each, since what a terminal shows cannot go on in the next."""
    plain = text.replace("[dim][/dim]", "")
    return [line.strip() for line in plain.splitlines() if line.startswith("  ")]
