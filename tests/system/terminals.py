"""Commands as a person sees them: on a terminal of a given width."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.waiting import SECONDS

_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_COLOURS = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9]+)*m")
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@dataclass(frozen=True)
class Screen:
    """What a command wrote to its terminal, and how it ended."""

    code: int
    raw: str

    @property
    def has_colours(self) -> bool:
        return _COLOURS.search(self.raw) is not None

    @property
    def lines(self) -> list[str]:
        """The lines without styles. For commands that do not move the cursor."""
        return _CONTROLS.sub("", _STYLES.sub("", self.raw)).splitlines()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def on_a_terminal(arguments: Sequence[str], environment: Mapping[str, str], width: int = 100) -> Screen:
    """Run a command to its end, with standard output and error on a terminal."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    known = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        arguments,
        env={**known, "TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    try:
        shown = read_to_the_end(controller)
        return Screen(process.wait(SECONDS), shown)
    finally:
        os.close(controller)
        process.kill()
        process.wait()


def read_to_the_end(controller: int) -> str:
    """All that is written to a terminal until its other end is closed."""
    found = b""
    with contextlib.suppress(OSError):  # so Linux says that the other end is closed
        while select.select([controller], [], [], SECONDS)[0] and (chunk := os.read(controller, 65536)):
            found += chunk
    return found.decode()
