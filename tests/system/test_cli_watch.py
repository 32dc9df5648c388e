"""``millstream group describe --watch``, as a script and as a person see it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from millstream import Admin, EmbeddedBroker, Producer, TopicPartition
from tests.system.cli_process import Cli, command
from tests.waiting import SECONDS


@pytest.fixture
def group(millstream_broker: EmbeddedBroker, millstream_topic: str) -> Iterator[str]:
    """A group that has committed 2 of 10 records."""
    name = f"g-{uuid.uuid4().hex[:8]}"
    send(millstream_broker, millstream_topic, 10)
    with Admin(bootstrap_servers=millstream_broker.bootstrap_servers) as admin:
        admin.reset_offsets(name, offsets={TopicPartition(millstream_topic, 0): 2})
        yield name


def send(broker: EmbeddedBroker, topic: str, number: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(number):
            producer.send(topic, b"x")


def test_a_script_gets_a_line_each_time(
    millstream_broker: EmbeddedBroker, millstream_topic: str, group: str
) -> None:
    cli = Cli(millstream_broker.bootstrap_servers)
    process = cli.start("group", "describe", group, "--watch", "--interval", "0.2", "--json")
    assert process.stdout is not None
    try:
        first = json.loads(process.stdout.readline())[0]
        assert (first["lag"], first["produced_per_s"]) == (8, None)
        send(millstream_broker, millstream_topic, 100)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            later = json.loads(process.stdout.readline())[0]
            if later["produced_per_s"]:
                break
        assert later["produced_per_s"] > 0
        assert later["committed_per_s"] == 0
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS)
    assert process.returncode == 143


def test_a_terminal_shows_one_picture(millstream_broker: EmbeddedBroker, group: str) -> None:
    controller, terminal = pty.openpty()
    with closing(os.fdopen(controller, "rb", buffering=0)) as screen:
        process = subprocess.Popen(
            command("group", "describe", group, "--watch", "--interval", "0.2"),
            env=Cli(millstream_broker.bootstrap_servers).environment | {"TERM": "xterm"},
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        try:
            shown = b""
            while shown.count(b"Ctrl-C ends it") < 2:
                assert select.select([screen], [], [], SECONDS)[0], shown
                shown += screen.read(65536)
            assert group.encode() in shown
            assert b"committed/s" in shown
        finally:
            process.terminate()
            process.wait(timeout=SECONDS)
