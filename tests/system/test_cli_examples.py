"""Every example of the help is pasted into a shell, and does what it should.

Loads are in tests/spark, and the demo has a test of its own. Where an example needs a program that may not be
installed (jq), there is a stand-in; where it names a place (a port, a directory), another is taken.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream import Admin, Consumer, EmbeddedBroker, Producer
from tests.help_examples import all_examples, leaves
from tests.system.secured import AUTHORIZER
from tests.waiting import SECONDS, until

TOPICS = (
    "orders",
    "payments",
    "customers",
    "pairs",
    "greetings",
    "old-orders",
    "prices",
    "copy",
    "a",
    "b",
    "c",
)
GOES_ON = re.compile(r"\bmillstream (broker|consume|group describe \S+ --watch)")
ENDS = re.compile(r" (-e|--exit-at-end|--max)\b")
JQ = """\
#!{python}
import json, re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
def look(value, path):
    if not path:
        print(json.dumps(value), flush=True)
        return
    for each in value if path[0] == "[]" else [value[int(path[0][1:-1]) if path[0][0] == "[" else path[0]]]:
        look(each, path[1:])
for line in sys.stdin:
    look(json.loads(line), re.findall(r"\\[\\d*\\]|\\w+", sys.argv[1]))
"""


def pasted() -> list[str]:
    """All examples but those of loads, which need Spark, and of the demo."""
    return [line for line in all_examples() if not re.search(r"millstream (load|demo|console)\b(?!-)", line)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def desk(broker: EmbeddedBroker, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A directory with the files that the examples speak of, and an environment where they can be typed."""
    (tmp_path / "orders.jsonl").write_text('{"id": 1, "customer": {"id": 7}}\n')
    (tmp_path / "customers.csv").write_text("name,country\nann,Brazil\n")
    (tmp_path / "pairs.txt").write_text("a:1\nb:2\n")
    (tmp_path / "password-file").write_text("a long secret\n")
    (tmp_path / "server.properties").write_text("num.partitions=2\n")
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
    (tmp_path / "consumed.jsonl").write_text('{"value": "v", "key": "k", "headers": [], "timestamp": 1}\n')
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "jq").write_text(JQ.replace("{python}", sys.executable))
    (programs / "jq").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    servers = {"MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    return tmp_path, {**os.environ, **servers, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path / "config")}


def prepare(admin: Admin, servers: str, example: str) -> None:
    """What the example finds: topics with records, and groups without members."""
    made = re.search(r"topic create (\S+)(?!.*--if-not-exists)", example)
    if "add-partitions" in example or "scan orders" in example:  # others have written what is no JSON
        admin.delete_topics(["orders"], missing_ok=True)
    for topic in TOPICS:
        admin.create_topic(topic, partitions=4 if topic == "orders" else 1, exist_ok=True)
    if made is not None:
        admin.delete_topics([made[1]])
    with Producer(bootstrap_servers=servers) as producer:
        for topic in set(TOPICS) - {made and made[1]}:
            producer.send(topic, b'{"id": 1}')
    if "user delete" in example:
        admin.set_password("ann", "secret", "SCRAM-SHA-256" if "256" in example else "SCRAM-SHA-512")
    for group in ("audit", "billing"):
        admin.reset_offsets(group, "earliest", topics=["orders"] if made is None else ["payments"])
    if "remove-members" in example:
        with Consumer(bootstrap_servers=servers, group_id="audit", group_instance_id="host-7") as member:
            member.subscribe(["orders"])
            until(lambda: member.poll(0.1) is not None and member.assignment(), "host-7 is a member")


def elsewhere(example: str, directory: Path) -> str:
    """The example with a place of the test's own: a broker takes a free port, and a directory."""
    if not example.startswith("millstream broker"):
        return example
    example = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", example).replace("/var/lib", str(directory))
    return example if "--listen" in example else f"{example} --listen 127.0.0.1:0"


@pytest.mark.parametrize("example", pasted())
def test_it_works_when_pasted(
    example: str, desk: tuple[Path, dict[str, str]], broker: EmbeddedBroker, admin: Admin
) -> None:
    directory, environment = desk
    if not example.startswith("millstream broker"):
        prepare(admin, broker.bootstrap_servers, example)
    command = elsewhere(example, directory)
    if "console-user remove" in example:
        with (directory / "password-file").open() as password:
            subprocess.run(
                ["millstream", "console-user", "add", "ann"], env=environment, stdin=password, check=True
            )
    if re.search(r"context (use|show|remove) dev|--context dev", example):
        known = ["millstream", "context", "add", "dev", "-b", broker.bootstrap_servers]
        subprocess.run(known, env=environment, stdout=subprocess.DEVNULL, check=True)
    with shell(command, directory, environment) as process:
        if GOES_ON.search(example) and not ENDS.search(example):
            wait_for_output(process, broker.bootstrap_servers)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode in (0, 130, -signal.SIGINT), err
        else:
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
            assert out or "produce" not in example
    assert "error" not in err and "Traceback" not in err


@contextmanager
def shell(command: str, directory: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_for_output(process: subprocess.Popen[str], servers: str) -> None:
    """Wait for the first line. Who starts at the end of a topic sees one when something new comes."""
    assert process.stdout is not None
    deadline = time.monotonic() + SECONDS
    with Producer(bootstrap_servers=servers) as producer:
        while not select.select([process.stdout], [], [], 0.2)[0]:
            assert time.monotonic() < deadline, "it says nothing"
            producer.send("orders", b'{"id": 2}', key=b"k").result(SECONDS)


def test_there_are_examples_of_everything() -> None:
    known = {path[0] for path in leaves()} - {"load", "demo", "console"}
    assert {example.partition("millstream ")[2].split()[0] for example in pasted()} >= known


def test_jq_stands_in(tmp_path: Path) -> None:
    """The stand-in looks where jq would."""
    script = tmp_path / "jq"
    script.write_text(JQ.replace("{python}", sys.executable))
    for path, expected in ((".[0].lag", "3\n"), (".[].lag", "3\n4\n")):
        done = subprocess.run(
            [sys.executable, script, path],
            input='[{"lag": 3}, {"lag": 4}]\n',
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == expected
