"""Contexts: every command reaches a secured broker by a name, and completion does, too."""

from __future__ import annotations

import io
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import EmbeddedBroker
from millstream.cli import main
from tests.system.cli_process import Cli
from tests.system.test_cli_completion import complete
from tests.waiting import SECONDS, until

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=True) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty configuration; without a context, commands find no broker."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", "127.0.0.1:1")


@pytest.fixture
def password(broker: EmbeddedBroker) -> str:
    return broker.client_settings["sasl.password"]


def add(broker: EmbeddedBroker, name: str = "prod", **changed: str) -> None:
    """A context with all settings typed; the password is a reference."""
    settings = {**broker.client_settings, "sasl.password": "${env:PROD_PASSWORD}"}
    servers = settings.pop("bootstrap.servers")
    settings |= {key.replace("_", "."): value for key, value in changed.items()}
    words = [word for key, value in settings.items() for word in ("--property", f"{key}={value}")]
    assert main(["context", "add", name, "-b", servers, *words]) == 0


def test_every_command_uses_the_context(
    broker: EmbeddedBroker, password: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(broker)
    monkeypatch.setenv("PROD_PASSWORD", password)
    named = ["--context", "prod"]
    assert main([*named, "topic", "create", "orders"]) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["produce", "orders", *named]) == 0
    assert main([*named, "consume", "orders", "--from", "earliest", "--exit-at-end", "--group", "g"]) == 0
    assert main([*named, "group", "describe", "g"]) == 0
    assert main([*named, "user", "list"]) == 0
    assert main([*named, "acl", "list"]) == 0
    monkeypatch.setenv("MILLSTREAM_CONTEXT", "prod")
    assert main(["topic", "list"]) == 0
    monkeypatch.delenv("MILLSTREAM_CONTEXT")
    monkeypatch.delenv("MILLSTREAM_BOOTSTRAP_SERVERS")
    assert main(["context", "use", "prod"]) == 0
    assert main(["topic", "describe", "orders"]) == 0
    printed = capsys.readouterr()
    assert "one\ntwo\n" in printed.out and "\norders\n" in printed.out
    assert printed.err == ""
    assert password not in printed.out


def test_what_is_typed_overrides_the_context(
    broker: EmbeddedBroker, password: str, capsys: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROD_PASSWORD", "wrong-secret")
    add(broker)
    assert main(["--context", "prod", "topic", "list"]) == 1
    said = capsys.readouterr().err
    assert "did not accept the user 'admin'" in said and "wrong-secret" not in said
    properties = tmp_path / "login.properties"
    properties.write_text(f"sasl.username=admin\nsasl.password={password}\n")
    assert main(["--context", "prod", "topic", "list", "--command-config", str(properties)]) == 0
    (tmp_path / "password").write_text(password)
    reference = f"sasl.password=${{dir:{tmp_path}:password}}"
    login = ("--property", "sasl.username=admin", "--property", reference)
    assert main(["--context", "prod", "consume", "none", "--from", "earliest", "--exit-at-end", *login]) == 1
    assert "there is no topic 'none'" in capsys.readouterr().err, "it has logged in"


def test_without_its_secret_the_error_names_where_it_should_be(
    broker: EmbeddedBroker, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROD_PASSWORD", raising=False)
    add(broker)
    assert main(["--context", "prod", "topic", "list"]) != 0
    assert "${env:PROD_PASSWORD}: this environment variable is not set" in capsys.readouterr().err


def test_the_console_uses_the_context(
    broker: EmbeddedBroker, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib.request import urlopen

    monkeypatch.setenv("PROD_PASSWORD", password)
    add(broker)
    process = Cli("127.0.0.1:1").start("--context", "prod", "console", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["bootstrap_servers"] == broker.bootstrap_servers

        def is_up() -> bool:
            with urlopen(f"{ready['url']}healthz", timeout=SECONDS) as answer:
                return bool(json.load(answer)["broker"] == "up")

        until(is_up, "a round of the sampler")
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=SECONDS)[1] == ""
    finally:
        process.kill()


def test_a_load_uses_the_context(
    broker: EmbeddedBroker, password: str, capsys: Printed, tmp_path: Path
) -> None:
    """Up to where it looks for its table: loads themselves are tested with Spark."""
    pytest.importorskip("deltalake")
    properties = tmp_path / "client.properties"
    shutil.copy(broker.data / "security" / "client.properties", properties)
    assert main(["context", "add", "prod", "--command-config", str(properties)]) == 0
    named = ("--context", "prod")
    assert main(["topic", "create", "loaded", *named]) == 0
    assert main(["load", "status", "loaded", "-g", "g", "--to", f"delta:{tmp_path / 'table'}", *named]) == 0
    assert "loaded" in capsys.readouterr().out


def test_completion_asks_the_cluster_of_the_context(
    broker: EmbeddedBroker, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROD_PASSWORD", password)
    add(broker)
    add(broker, "prod-eu")
    assert main(["--context", "prod", "topic", "create", "invoices"]) == 0
    asked = {
        "millstream --context prod topic describe inv": ["invoices"],
        "millstream topic describe --context prod inv": ["invoices"],
        "millstream topic describe inv": [],
        "millstream --context prod-": ["prod-eu"],
        "millstream topic list --context prod-": ["prod-eu"],
        "millstream context use prod": ["prod", "prod-eu"],
        "millstream --context nowhere topic describe inv": [],
    }
    assert complete("127.0.0.1:1", *asked) == list(asked.values())
