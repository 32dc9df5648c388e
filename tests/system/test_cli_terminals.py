"""Terminals of all widths, without colours where nobody wants them, and pipes that close early."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from tests.system.cli_process import Cli, command
from tests.system.terminals import on_a_terminal
from tests.waiting import SECONDS, until

LONG = "a-topic-with-a-rather-long-name-as-they-come-with-prefixes-and-suffixes"
BINARY = b"\xff\x00\xfe\x1b[31m"


@pytest.fixture(scope="module")
def cli() -> Iterator[Cli]:
    """A broker with a topic whose name is long, values that are no text, and a group with a member."""
    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(LONG, partitions=2)
        admin.create_topic("orders")
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", BINARY, BINARY, headers=[("h", BINARY)])
            producer.send("orders", "größer als 漢字".encode() * 20, b"k")
            producer.send("orders", None)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe([LONG, "orders"])
            until(lambda: consumer.poll(timeout=0.1), "a record comes")
            consumer.commit()
            yield Cli(broker.bootstrap_servers)


COMMANDS = [
    ["--help"],
    ["consume", "--help"],
    ["load", "run", "--help"],
    ["topic", "list"],
    ["topic", "describe", LONG],
    ["topic", "config", "orders"],
    ["group", "list"],
    ["group", "describe", "readers"],
    ["group", "reset", "new", "--to", "earliest", "--topic", LONG, "--dry-run"],
    ["consume", "orders", "--from", "earliest", "-e", "--format", "table"],
]


PROSE = ("topic  ", "nothing was changed", "$ millstream")
"""How lines begin that the terminal itself may break: names, to be copied whole, and sentences."""
ALL_OF_THEM = """
import json, sys
from millstream.cli import main
for arguments in json.loads(sys.argv[1]):
    print("$ millstream", *arguments, flush=True)
    assert main(arguments) == 0
"""


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(cli: Cli, width: int) -> None:
    program = [sys.executable, "-c", ALL_OF_THEM, json.dumps(COMMANDS)]
    screen = on_a_terminal(program, cli.environment, width)
    assert screen.code == 0, screen.text
    assert screen.text.count("$ millstream") == len(COMMANDS)
    examples = [line for line in screen.lines if line.lstrip().startswith("millstream ")]
    assert examples
    for line in screen.lines:
        assert cell_len(line.rstrip()) <= width or line.startswith(PROSE), line


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "list"], ["topic", "describe", "missing"]])
def test_colours_only_where_they_are_wanted(cli: Cli, arguments: list[str]) -> None:
    plain = on_a_terminal(command(*arguments), {**cli.environment, "NO_COLOR": "1"})
    assert not plain.has_colours, plain.raw
    if arguments != ["topic", "list"]:  # its table has styles, and no colours
        assert on_a_terminal(command(*arguments), cli.environment).has_colours


@pytest.mark.parametrize("form", ["text", "table", "{key} {value} {headers}"])
def test_a_terminal_does_not_obey_records(cli: Cli, form: str) -> None:
    screen = on_a_terminal(
        command("consume", "orders", "--from", "earliest", "-e", "--format", form), cli.environment
    )
    assert screen.code == 0
    assert "\x1b[31m" not in screen.raw
    assert "\\xff" in screen.text


def test_what_is_no_text_in_a_pipe(cli: Cli) -> None:
    arguments = command("consume", "orders", "--from", "earliest", "--max", "1")
    for form, expected in (("raw", BINARY), ("text", BINARY)):
        done = subprocess.run(
            [*arguments, "--format", form],
            env=cli.environment,
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        assert done.stdout == expected + b"\n"
    shown = json.loads(cli.ok("consume", "orders", "--from", "earliest", "--max", "1", "--json").out)
    assert shown["value"].keys() == shown["key"].keys() == {"base64"}
    assert cli.ok("consume", "orders", "--from", "earliest", "--max", "1", "--value-format", "hex").out == (
        BINARY.hex() + "\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "millstream --help | head -1",
        "millstream topic config orders | head -1",
        "millstream topic list | true",
        "millstream group describe readers | head -1",
        "millstream group describe readers --watch --interval 0.1 | head -1",
        "millstream group describe readers --watch --interval 0.1 --json | head -1",
        "millstream consume orders --from earliest | head -1",
        "millstream consume orders --from earliest --json | head -1",
    ],
)
def test_a_pipe_that_is_closed_early_is_no_error(cli: Cli, line: str) -> None:
    shell = line.replace("millstream", " ".join(command()), 1)
    with Producer(bootstrap_servers=cli.servers) as producer:
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", shell],
            env=cli.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            # Whoever has printed all there is notices with the next record that nobody reads on.
            until(lambda: _has_ended(process, producer), "it has ended")
            out, err = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
            process.communicate()
    assert (process.returncode, err) == (0, b""), err
    assert out.count(b"\n") <= 1


def _has_ended(process: subprocess.Popen[bytes], producer: Producer) -> bool:
    producer.send("orders", b"more").result(SECONDS)
    return process.poll() is not None


@pytest.mark.parametrize(
    ("arguments", "is_a_list"),
    [
        (["topic", "list"], True),
        (["topic", "describe", "orders"], True),
        (["topic", "config", "orders"], False),
        (["group", "list"], True),
        (["group", "describe", "readers"], True),
        (["group", "reset", "new", "--to", "earliest", "--topic", "orders", "--dry-run"], True),
    ],
)
def test_what_lists_has_lines_and_json(cli: Cli, arguments: list[str], is_a_list: bool) -> None:
    plain = cli.ok(*arguments)
    assert plain.lines and not set(plain.out) & set("─│┃\x1b")
    found = cli.ok(*arguments, "--json")
    assert len(found.lines) == 1
    assert isinstance(found.json, list) is is_a_list
