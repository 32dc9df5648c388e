"""``millstream demo`` runs by itself, adds up, and leaves nothing behind but the table."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.demo.tables import look_at
from tests.system.cli_process import command

SECONDS = 500.0


def test_broken_off_it_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("demo"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = ""
        while "By hand" not in told:
            line = process.stdout.readline()
            assert line, "it has ended"
            told += line
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, errors) == (143, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_adds_up(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    kept = tmp_path / "kept"
    kept.mkdir()
    done = subprocess.run(
        command("demo", "--json", "--picture", str(picture)),
        env={**os.environ, "TMPDIR": str(kept), "COLUMNS": "60"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    proof = json.loads(done.stdout)
    counting, loading = proof["counting"], proof["loading"]
    assert proof["holds"] is counting["holds"] is loading["holds"] is True
    assert counting["produced"] == counting["counted"] == 40_000
    assert counting["end_offsets"] == counting["counted_offsets"] == counting["committed_offsets"]
    assert loading["loaded"] + loading["rejected"] == loading["produced"] == 80_000
    assert loading["rejected"] == loading["expected_rejected"] > 0
    drawn = picture.read_text()
    assert "loaded" in drawn and "@font-face" not in drawn
    table = Path(proof["table"])
    assert [path.name for path in kept.iterdir()] == [table.parent.name]
    for line in look_at(table):
        _, *arguments = shlex.split(line)
        program = [sys.executable, "-m", "millstream"] if "rejected" in line else [sys.executable]
        looked = subprocess.run([*program, *arguments], capture_output=True, timeout=60, check=False)
        assert looked.returncode == 0, looked.stderr
        assert looked.stdout
