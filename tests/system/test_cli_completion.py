"""What a shell offers on Tab: asked as bash asks."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Admin, EmbeddedBroker, TopicPartition
from tests.system.cli_process import COMMAND_SECONDS
from tests.waiting import SECONDS

MILLSTREAM = Path(sys.executable).with_name("millstream")


PATIENT = f"""
from millstream.cli import completion
completion._CONNECT_SECONDS = completion._ANSWER_SECONDS = {SECONDS}
"""
"""For whom a broker is there: on a busy machine its answer may take longer than people wait for a Tab."""

ASKED = """
import json, os, sys
from millstream.cli import main
for line in json.loads(sys.argv[1]):
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = line, str(len(line.split(" ")) - 1)
    try:
        main([])
    except SystemExit:
        print("--", flush=True)
"""


def complete(servers: str, *lines: str, patience: str = PATIENT) -> list[list[str]]:
    """The words that are offered where each line ends. One process asks for all of them."""
    done = subprocess.run(
        [sys.executable, "-c", patience + ASKED, json.dumps(lines)],
        env={
            **os.environ,
            "MILLSTREAM_BOOTSTRAP_SERVERS": servers,
            "_MILLSTREAM_COMPLETE": "complete_bash",
        },
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    offered = [part.split() for part in done.stdout.split("--\n")[:-1]]
    assert len(offered) == len(lines)
    return offered


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for name in ("orders", "orders-clean", "payments"):
            admin.create_topic(name)
        for group in ("audit", "billing"):
            admin.reset_offsets(group, offsets={TopicPartition("orders", 0): 0})
        yield broker.bootstrap_servers


OFFERED = [
    ("millstream top", ["topic"]),
    ("millstream topic describe ", ["orders", "orders-clean", "payments"]),
    ("millstream topic describe orders-", ["orders-clean"]),
    ("millstream topic describe orders ", ["orders-clean", "payments"]),
    ("millstream topic delete p", ["payments"]),
    ("millstream topic config __", ["__consumer_offsets"]),
    ("millstream produce pay", ["payments"]),
    ("millstream consume orders pa", ["payments"]),
    ("millstream consume orders --group ", ["audit", "billing"]),
    ("millstream consume orders --from l", ["latest"]),
    ("millstream consume orders --format ", ["text", "json", "table", "raw"]),
    ("millstream group describe ", ["audit", "billing"]),
    ("millstream group reset audit --to ea", ["earliest"]),
    ("millstream group reset audit --topic p", ["payments"]),
    ("millstream load orders --gr", ["--group"]),
    ("millstream load orders --group b", ["billing"]),
    ("millstream load status pa", ["payments"]),
    ("millstream load pa", ["payments"]),
    ("millstream load st", ["status"]),
    ("millstream load --onc", ["--once"]),
    ("millstream produce orders --compression z", ["zstd"]),
    ("millstream broker --log-level DE", ["DEBUG"]),
]


def test_what_is_offered(servers: str) -> None:
    offered = complete(servers, *(line for line, _ in OFFERED))
    assert list(zip((line for line, _ in OFFERED), offered, strict=True)) == OFFERED


def test_the_broker_that_is_named_in_the_line(servers: str) -> None:
    assert complete("127.0.0.1:1", f"millstream topic describe -b {servers} pay") == [["payments"]]


def test_without_a_broker_nothing_is_offered_and_nothing_said(servers: str) -> None:
    with socket.socket() as unused:  # bound but not listening: nobody else can listen there
        unused.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{unused.getsockname()[1]}"
        asked = (
            "millstream topic describe ",
            "millstream group describe ",
            "millstream topic describe -b nonsense ",
            f"millstream produce -b {nowhere},{servers} ",
        )
        assert complete(nowhere, *asked) == [[], [], [], ["orders", "orders-clean", "payments"]]


def test_a_broker_that_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        assert complete(servers, "millstream topic describe ", patience="") == [[]]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_is_installed_for_a_shell(shell: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [MILLSTREAM, "--install-completion", shell],
        env={**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_MILLSTREAM_COMPLETE" in text for text in written)


def test_bash_completes(servers: str, tmp_path: Path) -> None:
    """The script that is printed works in a shell: the words are those of the broker.

    Bash gives it HOST:PORT and --option=value in parts, and replaces only the last of them.
    """
    host, port = servers.split(":")
    lines = [
        (["topic", "describe", "pay"], ["payments"]),
        (["topic", "describe", "-b", host, ":", port, "pay"], ["payments"]),
        (["topic", "describe", "--bootstrap-servers", "=", host, ":", port, "pay"], ["payments"]),
        (["topic", "describe", "--bootstrap-servers", "=", servers, "pay"], ["payments"]),
        (["topic", "describe", "-b", host, ":", port, ""], ["orders", "orders-clean", "payments"]),
        (["consume", "orders", "--group", "=", "aud"], ["audit"]),
        (["consume", "orders", "--from", "off"], ["offset:", "nospace"]),
        (["group", "reset", "audit", "--to", "shift", ":"], ["-"]),
        (["consume", "orders", "--from", "offset", ":"], []),
        (["produce", "--key-separator", ":", "pay"], ["payments"]),
    ]
    script, program = tmp_path / "complete.sh", tmp_path / "millstream"
    program.write_text(f"#!{sys.executable}\n{PATIENT}\nfrom millstream.cli import main\nmain()\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    shown = subprocess.run(
        [MILLSTREAM, "--show-completion", "bash"],
        env={**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=True,
    )
    script.write_text(shown.stdout)
    asked = [f"source {shlex.quote(str(script))}", "compopt() { space=nospace; }"]
    for words, _ in lines:
        typed = shlex.join(["millstream", *words])
        asked.append(f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; space=")
        asked.append('_millstream_completion millstream; echo "${COMPREPLY[@]}" $space')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(asked)],
        env={**environment, "MILLSTREAM_BOOTSTRAP_SERVERS": servers},
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    offered = [line.split() for line in done.stdout.splitlines()]
    assert list(zip((words for words, _ in lines), offered, strict=True)) == lines, done
