"""``millstream produce`` and topics that are not there: made and said so, or taken for slips."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import pytest

from millstream import Admin, EmbeddedBroker
from tests.system.cli_process import Cli, command
from tests.waiting import SECONDS


@pytest.fixture
def cli(bootstrap_servers: str) -> Cli:
    return Cli(bootstrap_servers)


@pytest.fixture
def name() -> str:
    """Of letters alone, so that names of other tests are not near it."""
    return "orders" + "".join("abcdefghijklmnop"[int(digit, 16)] for digit in uuid.uuid4().hex[:16])


def swapped(name: str) -> str:
    return name[:2] + name[3] + name[2] + name[4:]


def test_a_new_topic_is_made_and_said(cli: Cli, admin: Admin, name: str) -> None:
    done = cli("produce", name, stdin="one\n")
    partitions = len(admin.describe_topic(name).partitions)
    noun = "partition" if partitions == 1 else "partitions"
    assert (done.code, done.err) == (0, f"created topic {name} ({partitions} {noun})\n")
    assert done.out == f"1 record written to {name}\n"
    assert cli.ok("produce", name, stdin="two\n").out == f"1 record written to {name}\n"


def test_a_script_reads_it_in_json(cli: Cli, name: str) -> None:
    assert cli.ok("produce", name, "--json", stdin="x\n").json["created"] is True
    assert cli.ok("produce", name, "--json", stdin="x\n").json["created"] is False


def test_a_slip_makes_no_topic(cli: Cli, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    slip = swapped(name)
    assert cli.fails("produce", slip, stdin="one\n") == (
        f"error: there is no topic '{slip}': did you mean '{name}'? --create makes a new one"
    )
    assert slip not in admin.list_topics()
    meant = cli("produce", slip, "--create", stdin="one\n")
    assert (meant.code, meant.out) == (0, f"1 record written to {slip}\n")
    assert meant.err.startswith(f"created topic {slip} (")


def test_names_that_are_made_alike_are_no_slips(cli: Cli, admin: Admin, name: str) -> None:
    admin.create_topic(f"{name}-1")
    assert cli("produce", f"{name}-2", stdin="x\n").code == 0


def test_what_is_refused_makes_no_topic(cli: Cli, admin: Admin, name: str, tmp_path: Path) -> None:
    cli.fails("produce", name, str(tmp_path / "missing"))
    cli.fails("produce", name, "--property", "lingr.ms=0", code=2, stdin="x\n")
    assert "--compression" in cli.fails(
        "produce", name, "--property", "compression.type=zstd", code=2, stdin="x\n"
    )
    assert name not in admin.list_topics()


def test_a_broker_that_makes_no_topics() -> None:
    with EmbeddedBroker(settings={"auto.create.topics.enable": False}) as broker:
        cli = Cli(broker.bootstrap_servers)
        refused = cli.fails("produce", "orders", stdin="x\n")
        assert "creates none automatically" in refused and "millstream topic create orders" in refused
        made = cli("produce", "orders", "--create", stdin="x\n")
        assert (made.code, made.err) == (0, "created topic orders (1 partition)\n")


def test_a_tab_as_it_is_typed(cli: Cli, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    cli.ok("produce", name, "--key-separator", r"\t", stdin="k\tv\n")
    cli.ok("produce", name, "--format", "csv", "--delimiter", r"\t", "--key", "b", stdin="a\tb\n1\t2\n")
    shown = cli.ok("consume", name, "--from", "earliest", "-e", "--format", r"{key}\t{value}").lines
    assert sorted(shown) == ['2\t{"a": "1", "b": "2"}', "k\tv"]


def test_standard_output_may_be_closed(cli: Cli, admin: Admin, name: str) -> None:
    admin.create_topic(name)
    line = f"{' '.join(command('topic', 'describe', name))} >&-"
    done = subprocess.run(
        ["bash", "-c", line], env=cli.environment, capture_output=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
