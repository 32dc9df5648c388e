"""The examples as a user runs them: scripts in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.system.cli_process import COMMAND_SECONDS
from tests.waiting import SECONDS, until

EXAMPLES = Path(__file__).parents[2] / "examples"


def command(name: str, *arguments: object) -> list[str]:
    """How an example is started; a warning is an error there, too."""
    return [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *map(str, arguments)]


def run(name: str, *arguments: object) -> list[str]:
    """Run an example to its end, which must be a good one; returns the lines that it printed."""
    done = subprocess.run(
        command(name, *arguments), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{name}: {done.returncode}, {done.stderr[-2000:]}"
    return done.stdout.splitlines()


class RunningExample:
    """An example that goes on until it is told to stop; what it prints is kept as it comes."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._name = name
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command(name, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._readers = [
            threading.Thread(target=_read, args=(self._process.stdout, self.lines)),
            threading.Thread(target=_read, args=(self._process.stderr, self.errors)),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(signal.SIGKILL)

    def printed(self, *starts: str) -> list[str]:
        """The lines so far that start with one of these."""
        return [line for line in self.lines if line.startswith(starts)]

    def wait_for(self, start: str) -> str:
        """Wait for a line that starts so; returns the first."""

        def look() -> list[str]:
            ended = not any(reader.is_alive() for reader in self._readers)
            found = self.printed(start)
            assert found or not ended, f"{self!r} ended without {start!r}"
            return found

        found = until(look, f"{start!r} from {self!r}")
        return found[0]

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        if self.is_running:
            self.send(number)
        return self.join()

    def join(self) -> int:
        """Wait for the end; returns the exit code."""
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def __repr__(self) -> str:
        return f"<{self._name}: {self.lines[-20:]}, {self.errors[-20:]}>"


def _read(pipe: IO[str], lines: list[str]) -> None:
    for line in pipe:
        lines.append(line.rstrip("\n"))  # noqa: PERF401 - others look at the list meanwhile
