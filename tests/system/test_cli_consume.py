"""``millstream consume`` and ``millstream group``, as processes."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream import Admin, Producer, TopicPartition
from millstream.admin import GroupDescription, GroupMember
from millstream.errors import GroupIdNotFoundError
from tests.system.cli_process import Cli
from tests.waiting import SECONDS, until

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def cli(bootstrap_servers: str) -> Cli:
    return Cli(bootstrap_servers)


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def group() -> str:
    return f"audit-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(cli: Cli, admin: Admin) -> str:
    """Two partitions of ten records each: p0-0 … p0-9 and p1-0 … p1-9, a second apart."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, partitions=2)
    with Producer(
        bootstrap_servers=cli.servers, value_serializer="string", key_serializer="string"
    ) as producer:
        for partition in range(2):
            for number in range(10):
                producer.send(
                    name,
                    f"p{partition}-{number}",
                    f"k{number}",
                    partition=partition,
                    timestamp=FIRST_MS + number * 1000,
                )
    return name


def values(partition: int, *numbers: int) -> list[str]:
    return [f"p{partition}-{number}" for number in numbers]


def of_partition(lines: list[str], partition: int) -> list[str]:
    return [line for line in lines if line.startswith(f"p{partition}-")]


def committed(admin: Admin, group: str, topic: str) -> dict[int, int]:
    found = admin.group_offsets(group, topic)
    return {one.partition: at.offset for one, at in found.items()}


# ---- without a group ----


def test_everything_from_the_beginning(cli: Cli, topic: str) -> None:
    lines = cli.ok("consume", topic, "--from", "earliest", "--exit-at-end").lines
    assert len(lines) == 20
    assert of_partition(lines, 0) == values(0, *range(10))
    assert of_partition(lines, 1) == values(1, *range(10))


@pytest.mark.parametrize(
    ("position", "numbers"),
    [
        ("7", range(7, 10)),
        ("-2", range(8, 10)),
        ("99", ()),
        (f"@{FIRST_MS + 4500}", range(5, 10)),
        ("2h", ()),
        ("latest", ()),
    ],
)
def test_from_a_position(cli: Cli, topic: str, position: str, numbers: range | tuple[int, ...]) -> None:
    lines = cli.ok("consume", topic, "--from", position, "-e", "--partition", "1").lines
    assert lines == values(1, *numbers)


def test_so_many_and_no_more(cli: Cli, topic: str) -> None:
    assert len(cli.ok("consume", topic, "--from", "earliest", "--max", "7").lines) == 7
    assert cli.ok("consume", topic, "--from", "earliest", "--max", "0").lines == []
    assert len(cli.ok("consume", topic, "--from", "earliest", "--timeout", "5").lines) == 20


def test_json_and_back(cli: Cli, topic: str, admin: Admin) -> None:
    done = cli.ok("consume", topic, "--from", "earliest", "-e", "--json", "-p", "0")
    records = [json.loads(line) for line in done.lines]
    assert records[3] == {
        "topic": topic,
        "partition": 0,
        "offset": 3,
        "timestamp": FIRST_MS + 3000,
        "key": "k3",
        "value": "p0-3",
        "headers": [],
    }
    copy = f"{topic}-copy"
    admin.create_topic(copy, partitions=1)
    cli.ok("produce", copy, "--format", "records", "--header", "from=test", stdin=done.out)
    copied = cli.ok("consume", copy, "--from", "earliest", "-e", "--json").lines
    assert [json.loads(line) for line in copied] == [
        {**record, "topic": copy, "headers": [["from", "test"]]} for record in records
    ]


def test_columns_and_templates(cli: Cli, topic: str) -> None:
    arguments = ("consume", topic, "--from", "9", "-e", "-p", "1")
    assert cli.ok(*arguments, "--keys", "--offsets").out == f"{topic}\t1\t9\tk9\tp1-9\n"
    assert cli.ok(*arguments, "--format", "{offset}>{key}").out == "9>k9\n"
    assert cli.ok(*arguments, "--format", "table").lines[0].split()[-1] == "VALUE"


def test_a_topic_or_partition_that_is_not_there(cli: Cli, topic: str) -> None:
    assert f"did you mean '{topic}'?" in cli.fails("consume", topic[:-1])
    assert "0 to 1, not 5" in cli.fails("consume", topic, "--partition", "5")
    assert "fetch.min.byte" in cli.fails("consume", topic, "--property", "fetch.min.byte=1", code=2)


def test_new_records_appear_and_ctrl_c_ends(cli: Cli, topic: str) -> None:
    with started(cli, "consume", topic, "-p", "0", "--from", "9") as process:
        assert read_line(process) == "p0-9"
        with Producer(bootstrap_servers=cli.servers) as producer:
            producer.send(topic, b"new", partition=0).result(SECONDS)
        assert read_line(process) == "new"
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.communicate() == ("", "")


def test_a_reader_that_has_enough_is_no_error(cli: Cli, topic: str) -> None:
    with started(cli, "consume", topic, "--from", "earliest") as process:
        assert process.stdout is not None and process.stderr is not None
        read_line(process)
        process.stdout.close()
        with Producer(bootstrap_servers=cli.servers) as producer:
            producer.send(topic, b"too much").result(SECONDS)
        assert process.wait(SECONDS) == 0
        assert process.stderr.read() == ""


# ---- in a group ----


def test_a_group_goes_on_where_it_was(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    arguments = ("consume", topic, "--group", group, "--from", "earliest")
    first = cli.ok(*arguments, "--max", "7").lines
    assert len(first) == 7
    assert sum(committed(admin, group, topic).values()) == 7
    rest = cli.ok(*arguments, "--exit-at-end").lines
    assert sorted(first + rest) == sorted(values(0, *range(10)) + values(1, *range(10)))
    assert committed(admin, group, topic) == {0: 10, 1: 10}
    assert cli.ok(*arguments, "--exit-at-end").lines == []

    described = cli.ok("group", "describe", group, "--json").json[0]
    assert (described["state"], described["lag"]) == ("Empty", 0)
    assert group in cli.ok("group", "list").lines


def test_two_members_share_and_leave_at_once(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    arguments = ("consume", topic, "--group", group, "--from", "earliest")
    with started(cli, *arguments) as one, started(cli, *arguments) as other:
        members = wait_for_members(admin, group, 2)
        assert sorted(len(member.assignment) for member in members) == [1, 1]
        assert "has members" in cli.fails("group", "reset", group, "--to", "earliest", "--topic", topic)
        assert "members" in cli.fails("group", "delete", group)
        one.send_signal(signal.SIGTERM)
        assert one.wait(SECONDS) == 143
        (left,) = wait_for_members(admin, group, 1)
        assert [partition.partition for partition in left.assignment] == [0, 1]
        until(lambda: committed(admin, group, topic) == {0: 10, 1: 10}, "all is printed")
        other.send_signal(signal.SIGINT)
        assert other.wait(SECONDS) == 130
        assert sorted(one.communicate()[0].split() + other.communicate()[0].split()) == sorted(
            values(0, *range(10)) + values(1, *range(10))
        )
    wait_for_members(admin, group, 0)
    assert committed(admin, group, topic) == {0: 10, 1: 10}


def test_what_was_not_printed_is_not_committed(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    admin.reset_offsets(group, offset=10, topics=topic)
    with started(cli, "consume", topic, "--group", group) as process:
        wait_for_members(admin, group, 1)
        assert process.stdout is not None
        process.stdout.close()
        with Producer(bootstrap_servers=cli.servers) as producer:
            producer.send(topic, b"lost?", partition=0).result(SECONDS)
        assert process.wait(SECONDS) == 0
    assert cli.ok("consume", topic, "--group", group, "--exit-at-end").lines == ["lost?"]


def test_reset_moves_a_group(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    def reset(*arguments: str) -> dict[int, tuple[int | None, int]]:
        rows = cli.ok("group", "reset", group, "--json", *arguments).json
        return {row["partition"]: (row["before"], row["after"]) for row in rows}

    assert "--topic TOPIC" in cli.fails("group", "reset", group, "--to", "earliest")
    assert reset("--to", "earliest", "--topic", topic, "--dry-run") == {0: (None, 0), 1: (None, 0)}
    assert committed(admin, group, topic) == {}
    assert reset("--to", "latest", "--topic", topic) == {0: (None, 10), 1: (None, 10)}
    assert reset("--to", "4", "--topic", f"{topic}:1") == {1: (10, 4)}
    assert reset("--to", "shift:-3") == {0: (10, 7), 1: (4, 1)}
    assert reset("--to", "-2") == {0: (7, 8), 1: (1, 8)}
    assert reset("--to", f"@{FIRST_MS + 1500}") == {0: (8, 2), 1: (8, 2)}
    assert reset("--to", "99") == {0: (2, 10), 1: (2, 10)}
    shown = cli.ok("group", "reset", group, "--to", "earliest", "--dry-run").lines
    assert shown[1].split()[:4] == [topic, "0", "10", "0"]
    assert shown[-1].startswith("nothing was changed")
    assert committed(admin, group, topic) == {0: 10, 1: 10}


def test_a_dry_run_tells_of_members(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    arguments = ("group", "reset", group, "--to", "earliest", "--topic", topic, "--json")
    with started(cli, "consume", topic, "--group", group):
        wait_for_members(admin, group, 1)
        done = cli(*arguments, "--dry-run")
        assert (done.code, len(done.json)) == (0, 2)
        assert f"group {group} has members (" in json.loads(done.err)["warning"]
        assert "has members" in cli.fails(*arguments)


def test_the_way_past_a_record_that_cannot_be_read(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    admin.reset_offsets(group, offsets={TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10})
    message = cli.fails("consume", topic, "--group", group, "--exit-at-end", "--value-format", "uuid")
    advice = f"group reset {group} --topic {topic}:0 --to 5"
    assert message.endswith(f"'millstream {advice}'")
    rows = cli.ok(*advice.split(), "--json").json
    assert [(row["before"], row["after"]) for row in rows] == [(4, 5)]


def test_a_group_is_described_and_deleted(cli: Cli, topic: str, group: str, admin: Admin) -> None:
    admin.reset_offsets(group, offsets={TopicPartition(topic, 0): 4})
    text = cli.ok("group", "describe", group).lines
    assert text[0].split() == ["group", group]
    assert text[-1].split()[:5] == [topic, "0", "4", "10", "6"]
    assert cli.ok("group", "delete", group).out == f"deleted group {group}\n"
    assert group not in cli.ok("group", "list").lines
    assert "there is no group" in cli.fails("group", "describe", group)
    assert "there is no group" in cli.fails("group", "delete", group)


# ---- processes ----


@contextmanager
def started(cli: Cli, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = cli.start(*arguments)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SECONDS)[0], "no line came"
    return process.stdout.readline().rstrip("\n")


def wait_for_members(admin: Admin, group: str, number: int) -> list[GroupMember]:
    def look() -> GroupDescription | None:
        found = admin.describe_group(group, lag=False)
        is_settled = found.state == ("Stable" if number else "Empty")
        return found if is_settled and len(found.members) == number else None

    found = until(look, f"{number} members in group {group}", or_error=GroupIdNotFoundError)
    return list(found.members)
