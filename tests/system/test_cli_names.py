"""Names that are not there: the answer has the one that was probably meant."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from millstream import Admin, TopicPartition
from tests.system.cli_process import Cli


@pytest.fixture
def cli(bootstrap_servers: str) -> Cli:
    return Cli(bootstrap_servers)


@pytest.fixture
def topic(admin: Admin) -> str:
    name = f"t{uuid.uuid4().hex}"
    admin.create_topic(name)
    return name


@pytest.fixture
def group(admin: Admin, topic: str) -> str:
    """A group that has committed something; its name is near no other's."""
    name = "audit" + "".join("abcdefghijklmnop"[int(digit, 16)] for digit in uuid.uuid4().hex[:16])
    admin.reset_offsets(name, offsets={TopicPartition(topic, 0): 0})
    return name


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_misspelt_group(cli: Cli, group: str, command: str) -> None:
    expected = f"error: there is no group '{group[:-1]}': did you mean '{group}'?"
    assert cli.fails("group", command, group[:-1]) == expected


def test_a_group_has_a_coordinator(cli: Cli, admin: Admin, group: str) -> None:
    (described,) = cli.ok("group", "describe", group, "--json").json
    assert described["coordinator"] in {broker.node_id for broker in admin.describe_cluster().brokers}


def test_a_misspelt_group_in_reset(cli: Cli, admin: Admin, group: str, topic: str) -> None:
    """A group may be set to a place before it begins: where topics are named, it only warns."""
    slip = group[:-1]
    refused = cli.fails("group", "reset", slip, "--to", "earliest")
    assert f"there is no group '{slip}': did you mean '{group}'?" in refused and "--topic" in refused
    done = cli("group", "reset", slip, "--to", "earliest", "--topic", topic)
    assert done.code == 0
    assert done.err == f"warning: there was no group '{slip}' before: did you mean '{group}'?\n"
    assert cli.ok("group", "reset", slip, "--to", "latest").lines, "it is there now"
    assert cli.ok("group", "delete", slip).code == 0
    scripted = cli("group", "reset", slip, "--to", "earliest", "--topic", topic, "--dry-run", "--json")
    assert scripted.code == 0 and scripted.err.startswith('{"warning": ')
    assert slip not in [one.group_id for one in admin.list_groups()]


def test_a_group_whose_name_is_near_no_other(cli: Cli, topic: str) -> None:
    cli.ok("group", "reset", f"g{uuid.uuid4().hex}", "--to", "earliest", "--topic", topic)


def test_a_misspelt_state(cli: Cli) -> None:
    assert "Stable, Empty" in cli.fails("group", "list", "--state", "stabel", code=2)
    cli.ok("group", "list", "--state", "stable", "--state", "EMPTY")


def test_load_with_a_misspelt_command(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    place = ("--group", "g", "--to", f"delta:{tmp_path}/t")
    assert "did you mean 'millstream load status'?" in cli.fails("load", "staus", "orders", *place)
    assert "there is no topic 'staus'" in cli.fails("load", "staus", *place, "--once")
