"""Kafka's own ConsumerPerformance as a reader: its rate, and what its process took."""

from __future__ import annotations

import os
import subprocess
import uuid

from benchmarks.broker import TOOLS
from benchmarks.peers import BrokerProcess, java


def read(broker: BrokerProcess, topic: str, records: int) -> dict[str, float]:
    """Records a second while it fetched; CPU for a million and peak memory are those of the whole process."""
    command = java(
        TOOLS + "ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--messages", str(records)),
        *("--hide-header", "--group", uuid.uuid4().hex, "--timeout", "60000"),
    )
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None, "it was asked for"
    with process.stdout as pipe:
        output = pipe.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, output
    fields = output.strip().splitlines()[-1].split(", ")
    assert int(fields[4]) >= records, output
    return {
        "rate": float(fields[9]),
        "cpu": (used.ru_utime + used.ru_stime) / records * 1e6,
        "peak_mb": used.ru_maxrss / 1024,
    }
