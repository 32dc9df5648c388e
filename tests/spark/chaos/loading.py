"""The other end of ``loader``: a process that loads for tests, on a Spark that is elsewhere."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.spark.chaos.faults import Fault
from tests.spark.chaos.loader import ANSWER
from tests.spark.chaos.places import Place

ROOT = Path(__file__).parents[3]
SECONDS = 250.0
STEADY = {"session.timeout.ms": 60_000}
"""A machine that starts Java may keep the process from running for a while: it shall stay in its group."""


class Loader:
    """Does one load at a time."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                self._answers.put(line.removeprefix(ANSWER))

    def begin(
        self,
        servers: str,
        topic: str,
        group: str,
        place: Place,
        fault: Fault,
        *,
        stops: bool = False,
        **settings: Any,
    ) -> None:
        """Start a load; ``stops``: it is stopped as soon as one of its attempts waits."""
        order = {
            "servers": servers,
            "topic": topic,
            "group": group,
            "to": place.address,
            "fault": asdict(fault),
            "stops": stops,
            "settings": {"properties": STEADY, **settings},
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of it: ``report``, or ``error`` and ``kind``."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                found: dict[str, Any] = json.loads(self._answers.get(timeout=1.0))
            except queue.Empty:
                assert self.process.poll() is None and time.monotonic() < deadline, self.told()
            else:
                return found

    def report(self) -> dict[str, Any]:
        """The report of a load that ended well."""
        answer = self.answer()
        assert "report" in answer, f"{answer}\n{self.told()}"
        report: dict[str, Any] = answer["report"]
        return report

    def told(self) -> str:
        """The last of what it and Spark have said."""
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End it: cleanly if it is idle, and in any case."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(60)
        self.process.stdout.close()


def _search_path() -> str:
    """The tests' own modules, and what was there before."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@contextmanager
def loader(
    place: Path, master: str, settings: Mapping[str, str] | None = None, **environment: str
) -> Iterator[Loader]:
    """A process that loads with this master."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    log = place / "loader.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.chaos.loader", master, json.dumps(settings or {})],
            cwd=ROOT,
            env={**clean, "PYTHONPATH": _search_path(), "SPARK_LOCAL_IP": "127.0.0.1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    started = Loader(process, log)
    try:
        yield started
    finally:
        started.close()
