"""What was typed and makes no sense: exit code 2, one sentence, and no broker needed to find out."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

import millstream
from millstream.cli import main
from millstream.errors import GroupIdNotFoundError, InvalidConfigError, NonEmptyGroupError
from millstream.terminal import broker_check, outcome
from tests.waiting import SECONDS

Printed = pytest.CaptureFixture[str]


def misuse(arguments: list[str], capsys: Printed) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["brokr"], "did you mean 'broker'"),
        (["broker", "--lisen", "x"], "--listen"),
        (["broker", "--listen", "nowhere"], "'nowhere' is not an address"),
        (["broker", "--listen", "127.0.0.1:99999"], "its port must be"),
        (["broker", "--set", "num.partitions"], "write --set NAME=VALUE"),
        (["broker", "--set", "num.partition=3"], "did you mean num.partitions?"),
        (["broker", "--set", "num.partitions=many"], "num.partitions"),
        (["broker", "--set", "num.partitions=1", "--set", "num.partitions=2"], "given twice"),
        (["broker", "--log-level", "LOUD"], "--log-level 'LOUD' is unknown"),
        (["broker", "--data", __file__], "is not a directory"),
        (
            ["broker", "--data", "/proc/x"],
            "/proc/x cannot be created (No such file or directory): choose another",
        ),
        (["produce"], "missing argument 'TOPIC'"),
        (
            ["produce", "t", "--format", "xml"],
            "--format 'xml' is unknown: choose lines, json, csv or records",
        ),
        (["produce", "t", "--key", "id"], "--key names a field of JSON or CSV"),
        (["produce", "t", "--format", "json", "--key-separator", ":"], "--key-separator is for lines"),
        (["produce", "t", "--key-separator", ""], "--key-separator is empty"),
        (["produce", "t", "--delimiter", "ab"], "must be one character"),
        (["produce", "t", "--compression", "rar"], "--compression 'rar' is unknown"),
        (["produce", "t", "--header", "x"], "write --header NAME=VALUE"),
        (["produce", "t", "-p", "-1"], "--partition"),
        (["consume"], "missing argument 'TOPIC'"),
        (["consume", "t", "--from", "soon"], "--from 'soon' is not a position"),
        (["consume", "t", "--from", "shift:1"], "groups only"),
        (["consume", "t", "--group", "g", "--from", "5"], "millstream group reset"),
        (["consume", "t", "--group", "g", "--partition", "1"], "contradict"),
        (["consume", "t", "--group", ""], "--group is empty"),
        (["consume", "t", "--format", "jsn"], "did you mean json"),
        (["consume", "t", "--format", "{what}"], "its fields can be"),
        (["consume", "t", "--format", "table", "--keys"], "--format text"),
        (["consume", "t", "--max", "x"], "--max must be a whole number"),
        (["consume", "t", "--timeout", "-1"], "--timeout must be at least 0"),
        (["consume", "t", "--from"], "see 'millstream consume --help'"),
        (["group", "reset", "g", "--to"], "see 'millstream group reset --help'"),
        (["consume", "t", "--value-format", "avro", "--schema", __file__], "this is not an Avro schema"),
        (["consume", "t", "-b", "nowhere"], "--bootstrap-servers 'nowhere'"),
        (["consume", "t", "--property", "group.id=g"], "use --group"),
        (["consume", "t", "--property", "auto_offset_reset=earliest"], "use --from"),
        (["consume", "t", "--property", "print.key=true"], "use --keys"),
        (["consume", "t", "--property", "value.deserializer=json"], "use --value-format"),
        (["consume", "t", "--property", "bootstrap.servers=x:1"], "use --bootstrap-servers"),
        (["produce", "t", "--property", "compression.type=zstd"], "use --compression"),
        (["produce", "t", "--property", "linger.ms=soon"], "linger.ms is 'soon': it must be a whole number"),
        (
            ["produce", "t", "--property", "acks=1", "--property", "enable.idempotence=true"],
            "enable.idempotence needs",
        ),
        (["--json", "topic", "list"], "write it after the command"),
        (["topic", "list", "--josn"], "did you mean --json?"),
        (["consume", "t", "--from-beginning"], "write --from earliest"),
        (["consume", "--topic", "t"], "write the topic's name alone"),
        (["topic", "--create", "--topic", "t"], "write 'millstream topic create'"),
        (["group", "reset", "g", "--to-earliest"], "write --to earliest"),
        (
            ["group", "--describe", "--group", "g"],
            "write 'millstream topic describe' or 'millstream group describe'",
        ),
        (["group", "describe", "g", "--members"], "--members: leave it out: it is shown anyway"),
        (["group", "describe", "g", "--offsets", "--verbose"], "leave it out"),
        (["group", "reset", "g", "--to-current"], "write --to shift:0"),
        (["group", "reset", "g", "--from-file", "x.csv"], "write --to OFFSET --topic TOPIC:PARTITION"),
        (
            ["consume", "t", "--isolation-level", "read_committed"],
            "--property isolation.level=read_committed",
        ),
        (["consume", "t", "--consumer.config", "x"], "write --property NAME=VALUE"),
        (["produce", "t", "--producer.config", "x"], "write --property NAME=VALUE"),
        (["produce", "t", "--broker-list", "x:1"], "--broker-list: write --bootstrap-servers;"),
        (["produce", "t", "--sync"], "leave it out"),
        (["topic", "describe", "t", "--under-replicated-partitions"], "every partition is shown"),
        (["topic", "list", "--exclude-internal"], "listed only with --internal"),
        (["topic", "alter", "t"], "no such command 'alter': write 'millstream topic add-partitions' or"),
        (["group", "list", "--state", "stabel"], "choose Stable, Empty"),
        (["demo", "--picture", "/no/such/place/demo.svg"], "--picture '/no/such/place/demo.svg'"),
        (["load", "staus", "--to", "delta:x"], "did you mean 'millstream load status'?"),
        (["load", "rejcted", "--limit", "5"], "did you mean 'millstream load rejected'?"),
        (["load", "replay", "--group", "g", "--to", "delta:x"], "give --schema"),
        *(
            ([*command, "--property", "sasl.mechanism=GSSAPI"], "sasl.mechanism: Kerberos (GSSAPI) is not")
            for command in (["consume", "t"], ["produce", "t"], ["load", "t", "-g", "g", "--to", "delta:x"])
        ),
        (
            ["load", "t", "-g", "g", "--to", "delta:x", "--property", "auto.offset.reset=latest"],
            "use --starting",
        ),
    ],
)
def test_misuse_is_explained_in_a_sentence(arguments: list[str], expected: str, capsys: Printed) -> None:
    assert expected in misuse(arguments, capsys)


def test_what_is_not_shown_is_not_said_to_be(capsys: Printed) -> None:
    assert "shown anyway" not in misuse(["produce", "t", "--verbose"], capsys)


@pytest.mark.parametrize("command", [["produce", "t"], ["consume", "t"]])
def test_no_broker_is_told_at_once_with_what_to_do(command: list[str], capsys: Printed) -> None:
    with socket.socket() as unused:  # bound but not listening: nobody else can listen there
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert main([*command, "--bootstrap-servers", address]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"error: no broker answers at {address} (connection refused): ")
    assert "millstream broker" in err


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b""]
)
def test_what_is_no_broker_is_told_at_once(
    answer: bytes, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server, a listener that wants TLS, and one that hangs up."""
    monkeypatch.setattr(broker_check, "_SECONDS", SECONDS)  # the thread below may be kept waiting
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:  # the command looks a second time, for TLS
                connection, _ = server.accept()
                with connection, contextlib.suppress(ConnectionError):
                    if not connection.recv(65536):
                        return
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["topic", "list", "--bootstrap-servers", address]) == 1
        socket.create_connection(server.getsockname()).close()
        thread.join()
    err = capsys.readouterr().err
    assert err.startswith(f"error: no broker answers at {address} (") and "TLS" in err


def test_a_listener_that_says_nothing_is_told_in_seconds(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_check, "_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:  # never accepts: the system does, and stays silent
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        assert main(["topic", "list", "--bootstrap-servers", address]) == 1
    assert "accepts connections and says nothing" in capsys.readouterr().err
    assert time.monotonic() - began < 30


def test_errors_are_json_for_scripts(capsys: Printed) -> None:
    assert main(["consume", "t", "--json", "--from", "soon"]) == 2
    assert "--from 'soon'" in json.loads(capsys.readouterr().err)["error"]
    assert main(["consume", "t", "--json", "--format", "table"]) == 2
    assert "contradict" in json.loads(capsys.readouterr().err)["error"]
    assert main(["consume", "--json"]) == 2
    assert "missing argument" in json.loads(capsys.readouterr().err)["error"]


def test_a_traceback_only_with_debug(capsys: Printed) -> None:
    assert main(["consume", "t", "--from", "soon"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert main(["consume", "t", "--from", "soon", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_the_version(capsys: Printed) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"millstream {millstream.__version__}\n"


def test_no_command_prints_the_help(capsys: Printed) -> None:
    assert main([]) == 2
    assert "Usage: millstream" in "".join(capsys.readouterr())


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (outcome.UsageError("do this"), 2, "error: do this\n"),
        (outcome.CommandError("two\nlines"), 1, "error: two lines\n"),
        (InvalidConfigError("topic t: unknown x: y?"), 1, "error: topic t: unknown x: y?\n"),
        (NonEmptyGroupError("group g"), 1, "error: group g has members: stop them first\n"),
        (
            NonEmptyGroupError("group g has members (me)"),
            1,
            "error: group g has members (me): stop them first\n",
        ),
        (GroupIdNotFoundError("group g"), 1, "error: group g: "),
        (
            FileNotFoundError(2, "No such file or directory", "x.csv"),
            1,
            "error: x.csv: No such file or directory\n",
        ),
        (ValueError("odd"), 1, "error: a bug in millstream, please report it: ValueError: odd"),
        (KeyboardInterrupt(), 130, ""),
        (outcome.Terminated(), 143, ""),
    ],
)
def test_how_commands_end(error: BaseException, code: int, message: str, capsys: Printed) -> None:
    assert outcome.exit_code_of(raising(error), outcome.Session()) == code
    err = capsys.readouterr().err
    assert err.startswith(message) and bool(err) == bool(message)
