"""The command line as a user runs it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final

from tests.kafka.logins import properties_of

COMMAND_SECONDS: Final = 200.0
"""How long a command may take: a new process has a lot to load, and on a busy machine waits for each bit."""


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True)
class Cli:
    """Runs ``python -m millstream`` against one broker."""

    servers: str

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "MILLSTREAM_BOOTSTRAP_SERVERS": self.servers, "COLUMNS": "100"}

    def command(self, *arguments: str) -> list[str]:
        """The command; where there is a login, with the file that has its settings."""
        path = properties_of(self.servers)
        return command(*arguments, *(() if path is None else ("--command-config", str(path))))

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Finished:
        """Run a command to its end, whatever that is."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> Finished:
        """Run a command that must succeed and say nothing on standard error."""
        done = self(*arguments, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        return done

    def fails(self, *arguments: str, code: int = 1, stdin: str | bytes = b"") -> str:
        """Run a command that must fail with one line; returns that line."""
        done = self(*arguments, stdin=stdin)
        assert done.code == code, done
        assert done.err.count("\n") == 1, done
        assert "Traceback" not in done.err
        return done.err.strip()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that goes on."""
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millstream", *arguments]
