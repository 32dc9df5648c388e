"""One Apache Kafka for a whole test run, however many workers the run has.

The first test that needs it starts a keeper (``python -m tests.kafka.server``), which starts the server and
waits: for a signal at the end of the run, or for the end of the process that the run began in, so that no
server outlives a run that was killed. Workers find each other through a directory that the run's first
process names in the environment; a lock on a file in it decides who starts the keeper.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers import JARS, KAFKA, ApacheKafka, fetch_jars, free_port
from tests.kafka.secured import PROTOCOLS, SCRAM_USERS, make_certificates, secured_settings
from tests.waiting import until

ROOT: Final = Path(__file__).parents[2]
NAME: Final = KAFKA
_DIRECTORY: Final = "MILLSTREAM_TEST_RUN"
_START_SECONDS: Final = 300.0
"""Maven may have to fetch 54 MB first."""
_STOP_SECONDS: Final = 20.0

SETTINGS: Final = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 100,
    "group.coordinator.threads": 1,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.initial.task.delay.ms": 86_400_000,
}
"""The groups as the embedded broker has them by default; few threads, as a test machine is small; and no
retention during a run: tests write records with timestamps of years ago."""

_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""A run is too short for the optimising compiler to pay for itself."""


def what_is_missing() -> str:
    """Why Apache Kafka cannot run here, in words; empty where it can."""
    if shutil.which("java") is None:
        return "java is not on the PATH"
    if not any(JARS.glob("kafka_2.13-*.jar")) and shutil.which("mvn") is None:
        return "its jars are not there, and mvn, which would fetch them, is not on the PATH"
    return ""


class KafkaUnavailableError(Exception):
    """The server could not be had, for a reason outside this repository."""


class Run:
    """What the processes of one test run share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @staticmethod
    def begin() -> Run:
        """Name a directory for this process and its children."""
        directory = tempfile.mkdtemp(prefix="millstream-run-")
        (Path(directory) / "owner").write_text(str(os.getpid()))
        os.environ[_DIRECTORY] = directory
        return Run(Path(directory))

    @staticmethod
    def current() -> Run:
        return Run(Path(os.environ[_DIRECTORY]))

    def address(self) -> str:
        """The server's address; the first to ask starts it."""
        return self.listeners()["PLAINTEXT"]

    def listeners(self) -> dict[str, str]:
        """The addresses of its listeners, by name: see ``tests.kafka.secured``."""
        with self._lock():
            if not self._state.exists():
                self._start_keeper()
            state = json.loads(self._state.read_text())
        if "unavailable" in state:
            raise KafkaUnavailableError(state["unavailable"])
        assert "error" not in state, state["error"]
        listeners: dict[str, str] = state["listeners"]
        return listeners

    @property
    def certificates(self) -> Path:
        """Where the certificates of its listeners are."""
        return self._directory / "certificates"

    def end(self) -> None:
        """Stop the server, if anybody started one, and forget the run."""
        os.environ.pop(_DIRECTORY, None)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, AssertionError):
            pid = int((self._directory / "keeper").read_text())
            os.kill(pid, signal.SIGTERM)
            until(lambda: not is_alive(pid), f"{NAME} ends", _STOP_SECONDS)
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _state(self) -> Path:
        return self._directory / "state.json"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._directory / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _start_keeper(self) -> None:
        with (self._directory / "keeper.log").open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.kafka.server", str(self._directory)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._directory / "keeper").write_text(str(keeper.pid))
        # It is not waited for here: the process that began the run does that, and it may be another one.
        keeper.returncode = 0
        written = self._directory / "keeper.log"
        until(
            lambda: self._state.exists() or not is_alive(keeper.pid),
            lambda: f"{NAME} runs: {written.read_text()[-3000:]}",
            _START_SECONDS,
        )
        assert self._state.exists(), written.read_text()[-3000:]


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- the keeper


def _keep(directory: Path) -> None:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    owner = int((directory / "owner").read_text())
    try:
        fetch_jars()
    except subprocess.CalledProcessError as error:
        _tell(directory, unavailable=f"Maven could not fetch its jars (exit code {error.returncode})")
        return
    try:
        certificates = make_certificates(Run(directory).certificates)
        listeners = {name: (free_port(), protocol) for name, protocol in PROTOCOLS.items()}
        settings = {**SETTINGS, **secured_settings(certificates)}
        with ApacheKafka(settings, _OPTIONS, listeners, SCRAM_USERS) as kafka:
            addresses = {name: f"127.0.0.1:{port}" for name, (port, _) in listeners.items()}
            _tell(directory, listeners={"PLAINTEXT": kafka.bootstrap_servers, **addresses})
            while is_alive(owner) and not stop.wait(0.5):
                pass
    except RuntimeError as error:
        _tell(directory, error=str(error))
    if not is_alive(owner):  # nobody else will
        shutil.rmtree(directory, ignore_errors=True)


def _tell(directory: Path, **state: str | dict[str, str]) -> None:
    """Write the outcome so that it is seen whole or not at all."""
    part = directory / "state.part"
    part.write_text(json.dumps(state))
    part.rename(directory / "state.json")


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
