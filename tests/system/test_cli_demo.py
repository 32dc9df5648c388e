"""``millstream demo`` runs by itself, adds up, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.cli_process import Cli


@pytest.mark.slow
def test_the_demo_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = Cli("127.0.0.1:1").ok("demo", "--json")
    proof = done.json
    assert proof["holds"] is True
    assert proof["produced"] == proof["counted"] == 40_000
    assert proof["end_offsets"] == proof["counted_offsets"] == proof["committed_offsets"]
    assert os.listdir(tmp_path) == []
