"""``millstream broker`` as a process: ready, reachable, stopped cleanly, and clear about what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.system.cli_process import Cli
from tests.waiting import SECONDS

NOWHERE = Cli("127.0.0.1:1")


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker and its first line."""
    process = NOWHERE.start("broker", *arguments)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def ready(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with running("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--json") as (process, line):
        told = ready(line)
        assert told["data"] == str(tmp_path / "data")
        assert told["pid"] == process.pid
        Cli(told["address"]).ok("topic", "create", "orders")
        process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        assert out == ""
        assert "INFO" in err and "Traceback" not in err


def test_topics_survive_a_restart(tmp_path: Path) -> None:
    arguments = ("--data", str(tmp_path), "--listen", "127.0.0.1:0", "--json", "--set", "num.partitions=3")
    with running(*arguments) as (process, line):
        cli = Cli(ready(line)["address"])
        cli.ok("topic", "create", "orders")
        cli.ok("produce", "orders", "--partition", "0", stdin="a\nb\n")
        process.terminate()
        process.wait(SECONDS)
    with running(*arguments) as (process, line):
        described = Cli(ready(line)["address"]).ok("topic", "describe", "orders", "--json").json[0]
        assert [one["end_offset"] for one in described["partitions"]] == [2, 0, 0]


def test_the_line_for_people(tmp_path: Path) -> None:
    with running("--data", str(tmp_path), "--listen", "127.0.0.1:0") as (_, line):
        assert line.startswith("millstream broker is ready on 127.0.0.1:")
        assert f"data in {tmp_path}" in line


def test_an_address_in_use_and_a_directory_in_use(tmp_path: Path) -> None:
    with running("--data", str(tmp_path / "a"), "--listen", "127.0.0.1:0", "--json") as (_, line):
        address = ready(line)["address"]
        taken = NOWHERE.fails("broker", "--data", str(tmp_path / "b"), "--listen", address)
        assert taken.startswith(f"error: cannot listen on {address}: ") and "--listen" in taken
        locked = NOWHERE.fails("broker", "--data", str(tmp_path / "a"), "--listen", "127.0.0.1:0")
        assert "another broker" in locked.lower()


def test_other_machines_only_when_asked_for(tmp_path: Path) -> None:
    refused = NOWHERE.fails("broker", "--data", str(tmp_path), "--listen", "0.0.0.0:0", code=2)
    assert "allow-remote" in refused or "allow_remote" in refused


def test_settings_from_a_file_stay_out_of_the_process_list(tmp_path: Path) -> None:
    """As Kafka's server.properties: log.dirs, listeners, references; options go before the file."""
    (tmp_path / "secrets").write_text("admin=very-secret\n")
    jaas = f'user_admin="${{file:{tmp_path / "secrets"}:admin}}"'
    config = tmp_path / "server.properties"
    config.write_text(
        f"""# a broker
process.roles=broker,controller
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
listeners=SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs={tmp_path / "from-file"}
num.partitions=3
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required {jaas};
"""
    )
    with running("--config", str(config), "--json") as (process, line):
        told = ready(line)
        assert told["data"] == str(tmp_path / "from-file")
        assert set(told["listeners"]) == {"SASL_PLAINTEXT"}
        client = tmp_path / "client.properties"
        client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.username=admin\nsasl.password=very-secret\n"
        )
        cli = Cli(told["address"])
        cli.ok("topic", "create", "orders", "--command-config", str(client))
        assert "very-secret" not in Path(f"/proc/{process.pid}/cmdline").read_text()
    over = ("--data", str(tmp_path / "given"), "--listen", "127.0.0.1:0", "--set", "num.partitions=5")
    with running("--config", str(config), "--json", *over) as (_, line):
        told = ready(line)
        assert told["data"] == str(tmp_path / "given") and set(told["listeners"]) == {"PLAINTEXT"}
        Cli(told["address"]).ok("topic", "create", "orders")
        (described,) = Cli(told["address"]).ok("topic", "describe", "orders", "--json").json
        assert len(described["partitions"]) == 5


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    failed = NOWHERE.fails("broker", "--config", str(tmp_path / "none"), code=2)
    assert f"--config {tmp_path / 'none'}: cannot read it" in failed


def test_what_a_reference_refers_to_is_not_printed(tmp_path: Path) -> None:
    """Also where a secret was put into a setting that is none."""
    (tmp_path / "secrets").write_text("password=hunter2secret\n")
    reference = f"${{file:{tmp_path / 'secrets'}:password}}"
    config = tmp_path / "server.properties"
    for setting in (
        "super.users",
        "sasl.enabled.mechanisms",
        "num.partitions",
        "ssl.principal.mapping.rules",
    ):
        config.write_text(f"{setting}={reference}\nlog.dirs={tmp_path / 'data'}\n")
        failed = NOWHERE.fails("broker", "--config", str(config), code=2)
        assert "hunter2secret" not in failed
        assert setting in failed and reference in failed
