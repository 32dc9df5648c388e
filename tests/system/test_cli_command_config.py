"""``--command-config``: every command reaches a secured broker with Kafka's client.properties."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import EmbeddedBroker
from millstream.cli import main
from tests.system.secured import ADMIN, ADMIN_PASSWORD, Certificates, make_certificates, secured_broker

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[EmbeddedBroker]:
    with secured_broker(certificates, "SASL_SSL://127.0.0.1:0") as started:
        yield started


def properties(broker: EmbeddedBroker, certificates: Certificates, tmp_path: Path, password: str) -> str:
    """As a provider's page prints it, with a line of another client's and one that is continued."""
    path = tmp_path / "client.properties"
    path.write_text(
        f"""# Required connection configs
bootstrap.servers={broker.bootstrap_servers}
security.protocol=SASL_SSL
ssl.ca.location={certificates.ca}
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username='{ADMIN}' \\
  password='{password}';
client.dns.lookup=use_all_dns_ips
acks=all
session.timeout.ms=45000
"""
    )
    return str(path)


def test_commands_use_the_file(
    broker: EmbeddedBroker,
    certificates: Certificates,
    tmp_path: Path,
    capsys: Printed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ("--command-config", properties(broker, certificates, tmp_path, ADMIN_PASSWORD))
    assert main(["topic", "create", "orders", *given]) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["produce", "orders", *given]) == 0
    assert main(["consume", "orders", "--from", "earliest", "--exit-at-end", *given]) == 0
    assert main(["group", "list", *given]) == 0
    printed = capsys.readouterr()
    assert "one\ntwo\n" in printed.out
    assert ADMIN_PASSWORD not in printed.out + printed.err


@pytest.mark.parametrize("command", [["topic", "list"], ["consume", "t"], ["produce", "t"]])
def test_a_wrong_password_is_one_sentence_without_it(
    broker: EmbeddedBroker, certificates: Certificates, tmp_path: Path, capsys: Printed, command: list[str]
) -> None:
    given = ("--command-config", properties(broker, certificates, tmp_path, "wrong-secret"))
    assert main([*command, *given]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "did not accept the user 'admin' with sasl.mechanism PLAIN" in said
    assert said.count("\n") == 1
    assert "wrong-secret" not in said


def test_without_the_file_a_command_says_what_the_listener_requires(
    broker: EmbeddedBroker, capsys: Printed
) -> None:
    assert main(["topic", "list", "-b", broker.bootstrap_servers]) == 1
    said = capsys.readouterr().err
    assert "it requires TLS on this port: set security.protocol to SASL_SSL" in said
    assert "--command-config" in said


def test_settings_can_be_typed(broker: EmbeddedBroker, certificates: Certificates, capsys: Printed) -> None:
    typed = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": certificates.ca,
        "sasl.mechanism": "PLAIN",
        "sasl.username": ADMIN,
        "sasl.password": "wrong-secret",
    }
    words = [word for name, value in typed.items() for word in ("--property", f"{name}={value}")]
    assert main(["consume", "t", "-b", broker.bootstrap_servers, *words]) == 1
    said = capsys.readouterr().err
    assert "did not accept the user 'admin'" in said
    assert "wrong-secret" not in said


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "cannot read it: No such file"), ("a=\\u00zz", "line 1 has a \\u")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str | None, problem: str, capsys: Printed) -> None:
    path = tmp_path / "client.properties"
    if text is not None:
        path.write_text(text)
    assert main(["topic", "list", "--command-config", str(path)]) == 2
    assert problem in capsys.readouterr().err
