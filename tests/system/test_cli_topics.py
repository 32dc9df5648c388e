"""``millstream topic`` and ``millstream produce``, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from millstream import Admin
from tests.system.cli_process import Cli
from tests.waiting import SECONDS, until


@pytest.fixture
def cli(bootstrap_servers: str) -> Cli:
    return Cli(bootstrap_servers)


@pytest.fixture
def name() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def test_the_life_of_a_topic(cli: Cli, name: str) -> None:
    created = cli.ok("topic", "create", name, "--partitions", "3", "--config", "retention.ms=60000")
    assert created.out == f"created topic {name} with 3 partitions\n"
    assert name in cli.ok("topic", "list").lines

    described = cli.ok("topic", "describe", name, "--json").json[0]
    assert described["name"] == name
    assert described["configs"] == {"retention.ms": "60000"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert {(one["first_offset"], one["end_offset"]) for one in described["partitions"]} == {(0, 0)}

    assert cli.ok("topic", "add-partitions", name, "5").out == f"topic {name} has 5 partitions now\n"
    listed = cli.ok("topic", "list", "--json").json
    assert {"name": name, "partitions": 5} in listed

    assert cli.ok("topic", "delete", name).out == f"deleted topic {name}\n"
    assert name not in cli.ok("topic", "list").lines


def test_settings_are_shown_and_changed(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    changed = cli.ok(
        "topic", "config", name, "--set", "retention.ms=1234", "--set", "segment.bytes=2000000", "--json"
    )
    assert changed.json == {
        "retention.ms": {"value": "1234", "source": "topic"},
        "segment.bytes": {"value": "2000000", "source": "topic"},
    }
    reset = cli.ok("topic", "config", name, "--unset", "retention.ms", "--json").json
    assert reset["retention.ms"]["source"] != "topic"
    lines = cli.ok("topic", "config", name).lines
    assert lines[0].split() == ["SETTING", "VALUE", "FROM"]
    assert ["segment.bytes", "2000000", "topic"] in [line.split() for line in lines]
    assert "retention.mss" in cli.fails("topic", "config", name, "--set", "retention.mss=1")


def test_what_is_there_already_and_what_is_not(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    assert "exists already" in cli.fails("topic", "create", name)
    again = cli.ok("topic", "create", name, "-p", "7", "--if-not-exists", "--json").json
    assert again == {"name": name, "created": False, "partitions": 2}
    assert f"did you mean '{name}'?" in cli.fails("topic", "describe", name[:-1])
    assert f"did you mean '{name}'?" in cli.fails("topic", "delete", name + "x")
    assert cli.ok("topic", "delete", name, "never-there", "--if-exists", "--json").json == {"deleted": [name]}
    assert "millstream topic create zzz" in cli.fails("topic", "describe", "zzz")
    assert cli.fails("topic", "delete", "zzz").endswith(
        "there is no topic 'zzz': see 'millstream topic list', or add --if-exists to skip missing topics"
    )


def test_an_illegal_name(cli: Cli) -> None:
    assert "name" in cli.fails("topic", "create", "../ü")
    assert cli.fails("produce", "bad/name", stdin="x").startswith(
        "error: 'bad/name' is not a legal topic name: "
    )


def test_a_setting_that_is_like_no_other(cli: Cli, name: str) -> None:
    message = cli.fails("topic", "create", name, "--config", "foo=1")
    assert message.endswith(": 'millstream topic config' of any topic shows all")
    cli.ok("topic", "create", name)
    assert cli.fails("topic", "config", name, "--set", "foo=1").endswith(": leave out --set to see all")


def test_a_partition_that_is_not_there(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    expected = f"error: topic {name} has only partition 0, not 7: choose one that is there"
    assert cli.fails("produce", name, "-p", "7", stdin="x") == f"{expected}; nothing was written"
    assert cli.fails("group", "reset", "some-group", "--to", "0", "--topic", f"{name}:7") == expected


def end_offsets(cli: Cli, topic: str) -> dict[int, int]:
    with Admin(bootstrap_servers=cli.servers) as admin:
        found = admin.list_offsets(topic, "latest")
    return {one.partition: at.offset for one, at in found.items() if at is not None}


def test_produce_lines_from_standard_input(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    assert cli.ok("produce", name, stdin="one\ntwo\n\n").out == f"3 records written to {name}\n"
    assert sum(end_offsets(cli, name).values()) == 3


def test_produce_to_one_partition(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "3")
    done = cli.ok("produce", name, "--partition", "2", "--json", "--header", "a=b", stdin="x\n" * 50)
    assert done.json["records"] == 50
    assert end_offsets(cli, name) == {0: 0, 1: 0, 2: 50}
    assert "0 to 2, not 3" in cli.fails("produce", name, "--partition", "3", stdin="x\n")


def test_produce_a_file_with_keys(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.ok("topic", "create", name)
    file = tmp_path / "customers.csv"
    file.write_text("name,country\n" + "".join(f"c{index},k{index % 7}\n" for index in range(500)))
    cli.ok("produce", name, str(file), "--key", "country", "--compression", "zstd")
    assert sum(end_offsets(cli, name).values()) == 500


def test_bad_input_is_named_and_what_was_good_is_written(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.ok("topic", "create", name)
    file = tmp_path / "orders.jsonl"
    file.write_text("".join(json.dumps({"id": index}) + "\n" for index in range(10)) + "{broken\n")
    message = cli.fails("produce", name, str(file))
    assert message.startswith("error: 10 records written before: line 11 is not JSON")
    assert sum(end_offsets(cli, name).values()) == 10


def test_a_missing_file_and_a_record_that_is_too_large(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.ok("topic", "create", name)
    missing = tmp_path / "nothing.csv"
    assert cli.fails("produce", name, str(missing)).startswith(f"error: there is no file {missing}: ")
    too_large = cli.fails("produce", name, stdin=b"x" * 2_000_000)
    assert too_large.startswith("error: line 1: the record takes about ")
    assert too_large.count("send less at once") == 1
    assert "max.request.size" in too_large and "--property NAME=VALUE" in too_large


def test_a_refused_record_is_named_by_its_line(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "--config", "max.message.bytes=500")
    message = cli.fails("produce", name, stdin="a\n" + "x" * 800 + "\nb\n")
    assert message.startswith(f"error: line 2: {name}-0: ") and "larger than the topic allows" in message
    assert message.endswith("; 2 other records were written")
    assert sum(end_offsets(cli, name).values()) == 2


def test_a_refused_record_is_told_from_its_neighbours(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "--config", "cleanup.policy=compact")
    lines = [json.dumps({"key": key, "value": "v"}) for key in ("a", None, "b")]
    message = cli.fails("produce", name, "--format", "records", stdin="\n".join(lines))
    assert message.startswith("error: line 2: ")


def test_a_producers_settings(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, "--property", "acks=1", "--property", "linger.ms=0", stdin="x\n")
    assert "linger.ms" in cli.fails("produce", name, "--property", "lingr.ms=0", stdin="x\n", code=2)


def test_ctrl_c_delivers_what_was_typed(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name)
    process = subprocess.Popen(
        cli.command("produce", name), stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment
    )
    with process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        until(lambda: sum(end_offsets(cli, name).values()) == 2, "both are there")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        said = f"interrupted: 2 records written to {name}; to continue, add --from-line 3\n"
        assert process.stderr.read().decode() == said
    assert sum(end_offsets(cli, name).values()) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_file_is_gone_on_with(
    cli: Cli, name: str, tmp_path: Path, number: signal.Signals
) -> None:
    """A pipe with a name stands for a large file: the rest of it comes when the command has been stopped."""
    cli.ok("topic", "create", name)
    begun, whole = tmp_path / "begun.csv", tmp_path / "whole.csv"
    rows = ["id,text", "1,a", '2,"two', 'lines"', "3,c", "4,d"]
    whole.write_text("\n".join(rows) + "\n")
    os.mkfifo(begun)
    with cli.start("produce", name, str(begun), "--json") as process, begun.open("w") as writer:
        writer.write("\n".join(rows[:4]) + "\n")
        writer.flush()
        until(lambda: sum(end_offsets(cli, name).values()) == 2, "both rows are there")
        process.send_signal(number)
        assert process.wait(SECONDS) == 128 + number
        out, err = process.communicate()
    assert err == ""
    told = json.loads(out)
    assert told.items() >= {"records": 2, "interrupted": True, "unknown": 0, "next_line": 5}.items()
    rest = cli.ok("produce", name, str(whole), "--from-line", str(told["next_line"]), "--json").json
    assert rest["records"] == 2
    values = cli.ok("consume", name, "--from", "earliest", "-e").lines
    assert [json.loads(value)["id"] for value in values] == ["1", "2", "3", "4"]


def test_a_terminal_gets_tables(cli: Cli, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        cli.command("topic", "list"), stdout=other_end, stderr=other_end, env=cli.environment
    )
    os.close(other_end)
    shown = read_all(terminal)
    assert process.wait(SECONDS) == 0
    header, rule, *rows = [line for line in shown.splitlines() if line.strip()]
    assert "topic" in header and "partitions" in header
    assert set(rule.strip()) == {"─"}
    assert any(name in row and row.rstrip().endswith("2") for row in rows)


def read_all(terminal: int) -> str:
    """What was written to a terminal until its other end was closed."""
    found = b""
    with contextlib.suppress(OSError):  # so Linux says that the other end is closed
        while chunk := os.read(terminal, 65536):
            found += chunk
    os.close(terminal)
    return re.sub(r"\x1b\[[0-9;]*m", "", found.decode())
