"""``--secure``: one word makes a broker that can stand on a network, and what its clients need."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.peers import fetch_jars, java
from millstream import EmbeddedBroker
from millstream.errors import BrokerStartError
from tests.kafka.not_run import not_run
from tests.kafka.server import NAME, what_is_missing
from tests.system.test_cli_broker import running

SECONDS = 60


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data, security=True) as started:
        yield started


def test_its_settings_let_a_client_in(broker: EmbeddedBroker) -> None:
    assert set(broker.addresses) == {"SASL_SSL"}
    admin = AdminClient(dict(broker.client_settings))
    admin.create_topics([NewTopic("first", 1, 1)])["first"].result(SECONDS)
    assert "first" in admin.list_topics(timeout=SECONDS).topics


def test_a_second_start_uses_what_the_first_has_made(broker: EmbeddedBroker, data: Path) -> None:
    files = {path: path.read_bytes() for path in (data / "security").iterdir()}
    settings: Any = broker.client_settings
    broker.stop()
    broker.start()
    assert broker.client_settings == settings, "also the port"
    assert {path: path.read_bytes() for path in (data / "security").iterdir()} == files
    assert AdminClient(dict(settings)).list_topics(timeout=SECONDS).cluster_id


def test_only_the_brokers_user_can_read_its_secrets(broker: EmbeddedBroker, data: Path) -> None:
    assert stat.S_IMODE((data / "security").stat().st_mode) == 0o700
    private = [*(data / "security").iterdir(), data / "users"]
    assert {path.name for path in private} >= {"ca-key.pem", "broker.pem", "client.properties", "users"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    password = broker.client_settings["sasl.password"]
    assert password.encode() not in (data / "users").read_bytes()


def run_tool(main: str, *arguments: str) -> str:
    """Run one of Kafka's own tools; return what it prints."""
    if missing := what_is_missing():
        not_run(NAME, missing)
    fetch_jars()
    ran = subprocess.run(
        java(main, *arguments, options=("-XX:TieredStopAtLevel=1",)),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_kafkas_own_tools_manage_users_and_acls(broker: EmbeddedBroker, data: Path) -> None:
    """With the client.properties that the broker wrote: kafka-configs for SCRAM users, and kafka-acls."""
    there = ("--bootstrap-server", broker.bootstrap_servers)
    properties = ("--command-config", str(data / "security" / "client.properties"))
    user = ("--entity-type", "users", "--entity-name", "ann")
    configs, acls = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.AclCommand"
    password = "SCRAM-SHA-512=[iterations=8192,password=ann-secret]"
    run_tool(configs, *there, *properties, *user, "--alter", "--add-config", password)
    admin: Any = AdminClient(dict(broker.client_settings))
    (known,) = admin.describe_user_scram_credentials(["ann"])["ann"].result(SECONDS).scram_credential_infos
    assert known.iterations == 8192
    rule = ("--add", "--allow-principal", "User:ann", "--operation", "Describe", "--topic", "first")
    run_tool(acls, *there, *properties, *rule)
    listed = run_tool(acls, *there, *properties, "--list", "--topic", "first")
    assert "principal=User:ann, host=*, operation=DESCRIBE, permissionType=ALLOW" in listed
    ann: Any = {**broker.client_settings, "sasl.username": "ann", "sasl.password": "ann-secret"}
    assert set(AdminClient(ann).list_topics(timeout=SECONDS).topics) == {"first"}


def test_a_network_is_refused_without_a_login_and_allowed_with_one(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match="no authentication"):
        EmbeddedBroker(tmp_path / "open", "0.0.0.0:0").start()
    with EmbeddedBroker(tmp_path / "secure", "0.0.0.0:0", security=True) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        settings: Any = {**broker.client_settings, "bootstrap.servers": f"127.0.0.1:{port}"}
        assert AdminClient(settings).list_topics(timeout=SECONDS).cluster_id


def test_an_encrypted_listener_without_a_certificate_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BrokerStartError, match=r"SSL: there is no certificate: set ssl.keystore.location"):
        EmbeddedBroker(tmp_path, settings={"listeners": "SSL://127.0.0.1:0"}).start()


def test_the_command_prints_where_the_settings_of_clients_are(tmp_path: Path) -> None:
    command = ("--secure", "--json", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*command) as (_, line):
        ready = json.loads(line)
    assert ready["listeners"].keys() == {"SASL_SSL"}
    properties = Path(ready["client_properties"])
    assert f"bootstrap.servers={ready['address']}" in properties.read_text()
