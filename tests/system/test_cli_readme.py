"""What the README has people type works, in this order, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import EmbeddedBroker

ROOT = Path(__file__).parents[2]
SECONDS = 200.0


def typed(heading: str) -> str:
    """The commands below a heading, without the broker: that one is there already."""
    section = (ROOT / "README.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("millstream broker"))


def run(commands: str, directory: Path, servers: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=directory,
        env={**os.environ, "PATH": path, "MILLSTREAM_BOOTSTRAP_SERVERS": servers},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_first_consumer(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        shown = run(typed("A first consumer"), tmp_path, broker.bootstrap_servers)
    assert shown.splitlines() == [
        "created topic customerCountries with 3 partitions",
        "1 record written to customerCountries",
        "Portugal",
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_first_load(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with EmbeddedBroker() as broker:
        shown = run(typed("A first load"), tmp_path, broker.bootstrap_servers)
    assert "1 row loaded into delta:lake/orders, 1 rejected" in shown
    assert "check failed: price > 0" in shown
    assert re.search(r"^lag +0$", shown, re.MULTILINE)
