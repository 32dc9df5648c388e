"""The count that people see while records go into a file."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from contextlib import closing
from pathlib import Path

from millstream import EmbeddedBroker, Producer
from tests.system.cli_process import Cli, command
from tests.waiting import SECONDS


def test_consume_into_a_file_counts_on_the_terminal(
    millstream_broker: EmbeddedBroker, millstream_topic: str, tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=millstream_broker.bootstrap_servers) as producer:
        for number in range(1234):
            producer.send(millstream_topic, b"%d" % number)
    controller, terminal = pty.openpty()
    with closing(os.fdopen(controller, "rb", buffering=0)) as screen, (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            command("consume", millstream_topic, "--from", "earliest", "--exit-at-end"),
            env=Cli(millstream_broker.bootstrap_servers).environment | {"TERM": "xterm"},
            stdout=out,
            stderr=terminal,
        )
        os.close(terminal)
        shown = b""
        while select.select([screen], [], [], SECONDS)[0]:
            try:
                shown += screen.read(65536)
            except OSError:  # the terminal's other end is closed: the command has ended
                break
        assert process.wait(timeout=SECONDS) == 0
    assert b"1,234 records" in shown
    assert len((tmp_path / "out").read_bytes().splitlines()) == 1234
