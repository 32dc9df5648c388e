"""Help: every command has it, with examples that work; and it costs little to reach."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.cli import main
from tests.help_examples import examples, leaves

ROOT = Path(__file__).parents[3]
HEAVY = {
    "numba",
    "numpy",
    "pyarrow",
    "sqlite3",
    "millstream.client.client",
    "millstream.broker.broker",
    "asyncio",
}


LEAVES = leaves()
PATHS = sorted(LEAVES)


def test_the_commands_are_those_of_the_public_face() -> None:
    paths = list(PATHS)
    assert paths == [
        *(("acl", each) for each in ("add", "delete", "list")),
        ("broker",),
        ("console",),
        *(("console-user", each) for each in ("add", "list", "remove")),
        ("consume",),
        *(("context", each) for each in ("add", "list", "remove", "show", "use")),
        ("demo",),
        *(("group", each) for each in ("delete", "describe", "list", "remove-members", "reset")),
        *(("load", each) for each in ("rejected", "replay", "run", "status")),
        ("produce",),
        *(("quota", each) for each in ("delete", "list", "set")),
        ("scan",),
        *(("topic", each) for each in ("add-partitions", "config", "create", "delete", "describe", "list")),
        *(("user", each) for each in ("delete", "list", "set-password")),
    ]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_the_common_options(path: tuple[str, ...]) -> None:
    options = {name for parameter in LEAVES[path].params for name in parameter.opts}
    assert {"--json", "--debug"} <= options
    if path[0] not in ("broker", "console-user", "context", "demo"):
        assert {"--bootstrap-servers", "--command-config", "--context"} <= options


@pytest.mark.parametrize("path", [(), ("topic",), ("load",), *PATHS], ids=" ".join)
def test_options_without_a_value_show_no_type(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--help" in shown
    assert "bool" not in shown.lower()


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_example_can_be_typed(path: tuple[str, ...]) -> None:
    shown = examples(LEAVES[path].help)
    own = 0
    for example in shown:
        for words in pipeline(example):
            if words[0] != "millstream":
                continue
            if words[1] == "load" and tuple(words[1:3]) not in LEAVES:
                words.insert(2, "run")  # a topic, where a command's name could be
            command, rest = find(words[1:])
            command.make_context("millstream", rest).close()
            own += words[1 : len(path) + 1] == list(path)
    assert own >= 2, "an example is worth a paragraph, and two are worth more"


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_examples_can_be_pasted_from_a_terminal_of_80_columns(path: tuple[str, ...]) -> None:
    """A line that the terminal breaks is two lines when it is pasted."""
    assert max(map(len, examples(LEAVES[path].help))) <= 75


def pipeline(example: str) -> list[list[str]]:
    """The commands of a line of shell, without comments and redirections."""
    parts: list[list[str]] = [[]]
    for word in shlex.split(example.partition(" <")[0], comments=True):
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def find(words: list[str]) -> tuple[Any, list[str]]:
    length = 2 if tuple(words[:2]) in LEAVES else 1
    return LEAVES[tuple(words[:length])], words[length:]


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["topic", "--help"], ["group", "reset", "--help"]])
def test_help_is_printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "Usage: millstream" in out
    assert "millstream" in out.split("Usage: millstream", 1)[1]
    assert err == ""


def test_the_documentation_has_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for path, command in LEAVES.items():
        assert f"`millstream {' '.join(path)}" in text
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert f"`{option}" in text, f"{' '.join(path)} {option}"


def modules_after(code: str) -> set[str]:
    script = f"import sys; {code}; print(chr(10).join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


def test_nothing_heavy_on_the_way_to_the_help() -> None:
    assert not HEAVY & modules_after("from millstream.cli.app import run; run(['--help'])")


def test_no_parser_and_no_tables_on_the_way_to_a_broker() -> None:
    loaded = modules_after("import millstream.cli; from millstream.cli.broker import arguments, serve")
    assert not {"typer", "click", "rich", "pydantic", "numba", "pyarrow", "asyncio"} & loaded
