"""A start of Java ends with the program, at whatever moment that is."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from millstream.spark.runtime.launch import end_starts, java_start
from tests.waiting import SECONDS

gateway: Any = pytest.importorskip("pyspark.java_gateway")
SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_process_that_is_just_being_started_ends_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ending = threading.Event(), threading.Event()
    made: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            made.append(self)
            started.set()
            ending.wait(0.2)  # the end finds the process running, and no one who knows it

    monkeypatch.setattr("subprocess.Popen", Slow)
    with java_start():
        starter = threading.Thread(target=gateway.Popen, args=(SLEEPING,))
        starter.start()
        assert started.wait(SECONDS)
        end_starts()
        ending.set()
        starter.join(SECONDS)
    try:
        assert made[0].poll() is not None, "it is still running"
    finally:
        made[0].kill()
        made[0].wait()


def test_nothing_is_started_after_the_end() -> None:
    with java_start():
        end_starts()
        with pytest.raises(RuntimeError, match="the program ends"):
            gateway.Popen(SLEEPING)
        with pytest.raises(RuntimeError, match="the program ends"):
            Path(gateway.tempfile.mkdtemp()).rmdir()
