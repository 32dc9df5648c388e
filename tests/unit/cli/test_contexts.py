"""``millstream context``: what is kept, who may read it, what is shown, and which context is used."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millstream.cli import main
from millstream.cli.connection import Connection, connection_of, override
from tests.help_examples import leaves

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration, and no brokers in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MILLSTREAM_CONTEXT", "MILLSTREAM_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def file(home: Path) -> Path:
    return home / "config" / "millstream" / "contexts.json"


def add(name: str, *more: str) -> None:
    assert main(["context", "add", name, *more]) == 0


def printed_json(capsys: Printed, *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def decided(*words: str) -> Connection:
    """The connection of ``topic list``, typed with these options."""
    command = leaves()["topic", "list"]
    context = command.make_context("list", list(words))
    with context:
        return connection_of(context, context.params["servers"])


def test_a_context_is_kept_for_its_owner_only(home: Path, capsys: Printed) -> None:
    before = os.umask(0)  # what it allows must not matter
    try:
        add("dev", "-b", "one:9092")
        add("qa", "--bootstrap-server", "two:9092,three:9092")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(file(home).parent.stat().st_mode) == 0o700
    assert sorted(os.listdir(file(home).parent)) == [".contexts.json.lock", "contexts.json"]
    capsys.readouterr()
    assert main(["context", "list"]) == 0
    assert capsys.readouterr().out == "dev\nqa\n"
    found = printed_json(capsys, "context", "list")
    assert [(one["name"], one["bootstrap_servers"]) for one in found] == [
        ("dev", "one:9092"),
        ("qa", "two:9092,three:9092"),
    ]


def test_secrets_are_never_shown_and_references_stay_references(
    home: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", "from-the-environment")
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "PlainLoginModule required username='u' password='hunter2';",
        "ssl.key.password": "${env:KEY_PASSWORD}",
        "ssl.keystore.key": "hunter3${env:KEY_PASSWORD}",
        "sasl.login.refresh.secret": "hunter4",
    }
    words = [word for name, value in settings.items() for word in ("--property", f"{name}={value}")]
    add("prod", "-b", "prod:9093", *words)
    shown = printed_json(capsys, "context", "show", "prod")
    assert shown["settings"] == {
        **settings,
        **dict.fromkeys(("sasl.jaas.config", "ssl.keystore.key", "sasl.login.refresh.secret"), "[hidden]"),
    }
    for command in (["context", "show", "prod"], ["context", "list"], ["context", "list", "--json"]):
        assert main(command) == 0
    text = capsys.readouterr().out
    assert "hunter" not in text and "from-the-environment" not in text
    assert "${env:KEY_PASSWORD}" in text
    assert "from-the-environment" not in file(home).read_text()


def test_a_file_is_referred_to_from_anywhere(
    home: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = home / "client.properties"
    properties.write_text("bootstrap.servers=filed:9093\nsecurity.protocol=SSL\nssl.key.password=hunter2\n")
    monkeypatch.chdir(home)
    add("prod", "--command-config", "client.properties", "--property", "ssl.ca.location=ca.pem")
    monkeypatch.chdir("/")
    assert "hunter2" not in file(home).read_text()
    found = decided("--context", "prod")
    assert found.servers == "filed:9093"
    assert found.settings["ssl.key.password"] == "hunter2"
    assert found.settings["ssl.ca.location"] == str(home / "ca.pem")
    properties.write_text("bootstrap.servers=moved:9093\n")
    assert decided("--context", "prod").servers == "moved:9093"
    properties.unlink()
    assert main(["topic", "list", "--context", "prod"]) == 2
    said = capsys.readouterr().err
    assert f"context 'prod': --command-config {properties}: cannot read it: No such file" in said
    assert printed_json(capsys, "context", "list")[0]["command_config"] == str(properties)


def test_which_brokers_are_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("a", "-b", "a:1", "--property", "security.protocol=SSL")
    add("b", "-b", "b:1")
    properties = home / "client.properties"
    properties.write_text("bootstrap.servers=filed:1\nsecurity.protocol=SSL\nssl.ca.location=/ca\n")
    with_file = ("--command-config", str(properties))

    assert decided() == Connection("127.0.0.1:9092", {}, "")
    assert main(["context", "use", "b"]) == 0
    assert decided() == Connection("b:1", {}, "b")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP_SERVERS", "environment:1")
    assert decided() == Connection("environment:1", {}, "")
    assert decided("--context", "b").servers == "b:1"
    monkeypatch.setenv("MILLSTREAM_CONTEXT", "a")
    assert decided() == Connection("a:1", {"security.protocol": "SSL"}, "a")
    assert decided("--context", "b") == Connection("b:1", {}, "b")
    assert decided(*with_file).servers == "filed:1"
    assert decided(*with_file, "--context", "b").servers == "filed:1"
    assert decided(*with_file, "--context", "b", "-b", "typed:1").servers == "typed:1"
    assert decided("--context", "a", "-b", "typed:1").settings == {"security.protocol": "SSL"}


@pytest.mark.parametrize("where", ["current", "environment"])
def test_a_login_does_not_follow_to_brokers_that_were_not_meant(
    home: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("sasl.mechanism=PLAIN", "sasl.username=u", "sasl.password=hunter2")
    typed = [word for each in words for word in ("--property", each)]
    add("prod", "-b", "prod:1", "--property", "security.protocol=SASL_PLAINTEXT", *typed)
    if where == "current":
        assert main(["context", "use", "prod"]) == 0
    else:
        monkeypatch.setenv("MILLSTREAM_CONTEXT", "prod")
    properties = home / "client.properties"
    properties.write_text("bootstrap.servers=other:1\n")
    assert decided().settings["sasl.password"] == "hunter2"
    assert decided("-b", "other:1") == Connection("other:1", {}, "")
    assert decided("--command-config", str(properties)) == Connection("other:1", {}, "")
    properties.write_text("sasl.jaas.config=mine\n")  # another login, to the same brokers
    found = decided("--command-config", str(properties))
    assert (found.servers, found.settings["sasl.jaas.config"]) == ("prod:1", "mine")
    assert "sasl.password" not in found.settings and "sasl.username" not in found.settings


def test_a_setting_with_two_names_is_overridden_under_either() -> None:
    assert override({"ssl.ca.location": "a", "acks": "1"}, {"ssl.truststore.location": "b"}) == {
        "acks": "1",
        "ssl.truststore.location": "b",
    }


def test_choosing_replacing_and_removing(capsys: Printed) -> None:
    add("dev", "-b", "a:1")
    assert main(["context", "use", "dev"]) == 0
    assert main(["context", "add", "dev", "-b", "b:1"]) == 2
    assert "there is a context 'dev' already: add --replace" in capsys.readouterr().err
    add("dev", "-b", "b:1", "--replace")
    assert decided().servers == "b:1"
    assert main(["context", "use", "--none"]) == 0
    assert decided().servers == "127.0.0.1:9092"
    assert main(["context", "use", "dev"]) == 0
    assert main(["context", "remove", "dev"]) == 0
    assert decided().servers == "127.0.0.1:9092"
    assert printed_json(capsys, "context", "list") == []


@pytest.mark.parametrize(
    "words",
    [
        ("--context", "prdo", "topic", "list"),
        ("topic", "list", "--context", "prdo"),
        ("context", "use", "prdo"),
        ("context", "show", "prdo"),
        ("context", "remove", "prdo"),
    ],
)
def test_a_name_that_does_not_exist(words: tuple[str, ...], capsys: Printed) -> None:
    add("prod", "-b", "a:1")
    add("zz", "-b", "a:1")
    capsys.readouterr()
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert "there is no context 'prdo': did you mean 'prod'?" in said
    assert "'millstream context list'" in said and "'zz'" not in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("add", "dev"), "a context needs brokers: give --bootstrap-servers"),
        (("add", "dev", "-b", "nowhere"), "--bootstrap-servers 'nowhere'"),
        (("add", "../dev", "-b", "a:1"), "is no name for a context"),
        (("add", "-b", "a:1", "--", "-dev"), "is no name for a context"),
        (("add", "dev", "-b", "a:1", "--property", "sasl.mechanizm=PLAIN"), "did you mean sasl.mechanism?"),
        (
            ("add", "dev", "-b", "a:1", "--property", "sasl.password=hunter2"),
            "is given, but security.protocol",
        ),
        (("add", "dev", "-b", "a:1", "--property", "bootstrap.servers=b:1"), "use --bootstrap-servers"),
        (("add", "dev", "--command-config", "/nowhere"), "cannot read it: No such file"),
        (("use",), "give the name of a context, or --none"),
        (("use", "dev", "--none"), "give the name of a context, or --none"),
    ],
)
def test_misuse(words: tuple[str, ...], expected: str, home: Path, capsys: Printed) -> None:
    assert main(["context", *words]) == 2
    said = capsys.readouterr().err
    assert expected in said and said.count("\n") == 1
    assert "hunter2" not in said
    assert not file(home).exists()


@pytest.mark.parametrize("command", ["broker", "demo", "context"])
def test_commands_without_brokers_refuse_a_context(command: str, capsys: Printed) -> None:
    add("dev", "-b", "a:1")
    assert main(["--context", "dev", command, *(["list"] if command == "context" else [])]) == 2
    assert f"'{command}' connects to none: leave it out" in capsys.readouterr().err


def test_errors_are_in_the_words_of_the_command_after_the_context(capsys: Printed) -> None:
    add("dev", "-b", "127.0.0.1:1")
    for words in (["--context", "dev"], ["--context=dev"]):
        assert main([*words, "consume", "t", "--property", "fetch.max.wait.ms=x"]) == 2
        assert "fetch.max.wait.ms" in capsys.readouterr().err
        assert main([*words, "topic", "lst"]) == 2
        assert "'millstream topic --help'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"contexts": 1}', '{"contexts": {"a": []}}', '{"contexts": {"a": {"settings": 1}}}']
)
def test_a_damaged_file_is_named(text: str, home: Path, capsys: Printed) -> None:
    file(home).parent.mkdir(parents=True)
    file(home).write_text(text)
    file(home).chmod(0o600)
    assert main(["context", "list"]) == 1
    assert f"{file(home)} is damaged" in capsys.readouterr().err
    assert main(["context", "add", "dev", "-b", "a:1"]) == 1
    assert file(home).read_text() == text, "what cannot be read is not overwritten"


def test_a_file_that_others_can_read_is_pointed_out(home: Path, capsys: Printed) -> None:
    add("dev", "-b", "a:1")
    file(home).chmod(0o644)
    assert main(["context", "list"]) == 0
    assert f"run 'chmod 600 {file(home)}'" in capsys.readouterr().err


def test_a_crash_while_writing_keeps_the_old_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("dev", "-b", "a:1")
    before = file(home).read_text()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("millstream.terminal.private_files.os.fsync", full)
    assert main(["context", "add", "qa", "-b", "b:1"]) == 1
    assert file(home).read_text() == before
    assert sorted(os.listdir(file(home).parent)) == [".contexts.json.lock", "contexts.json"]


def test_a_link_stays_a_link(home: Path) -> None:
    real = home / "dotfiles.json"
    file(home).parent.mkdir(parents=True)
    file(home).symlink_to(real)
    add("dev", "-b", "a:1")
    assert file(home).is_symlink() and "a:1" in real.read_text()


def test_adding_at_the_same_time_loses_none(home: Path, capsys: Printed) -> None:
    program = "import sys; from millstream.cli import main; sys.exit(main(sys.argv[1:]))"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, "context", "add", f"c{number}", "-b", "a:1"],
            stdout=subprocess.DEVNULL,
        )
        for number in range(6)
    ]
    assert [process.wait() for process in started] == [0] * 6
    assert len(printed_json(capsys, "context", "list")) == 6
