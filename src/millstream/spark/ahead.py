"""The parent of Spark's Python workers, started beside Java instead of by it.

Java starts that process (``daemon``) when it has a first task for Python, and the task then waits for all
that workers import. So the driver starts one that imports it while Java is still starting; Java's own, when
it comes, hands over to that one:

    driver ─▶ Java ───────────── a first task ─▶ its daemon: hand_over, and wait for the other's end
       └────▶ the daemon ahead: imports ─ waits ─▶ take_over: forks workers, as Java asks

Java talks to its daemon through the standard streams. They are passed on, with the environment. When Java
ends, or its daemon does, Java's end of them is closed, and that ends the one ahead. Where the one ahead is
missing, or began with anything else than Java's, Java's does the work itself.
"""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ADDRESS: Final = "MILLSTREAM_DAEMON_AHEAD"
"""The variable by which Java's daemon is told where the one ahead listens."""
WORD: Final = "--ahead"
"""The first argument of the one ahead."""

_STREAMS: Final = (0, 1, 2)
_SPARKS_OWN: Final = ("JAVA_HOME", "MILLSTREAM_", "PYSPARK_", "PYTHONPATH", "PYTHON_", "SPARK_", "_")
_OF_THE_SHELL: Final = ("OLDPWD", "PWD", "SHLVL")
"""Variables that Spark's script and Java set, and that no import looks at."""


class Ahead:
    """A daemon that gets ready. Unless it has taken over, it ends soon after this process does."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        """``environment`` is what Java adds for its daemon. Raises OSError where it cannot be started."""
        place = tempfile.mkdtemp(prefix="millstream-")  # which only this user may enter
        self.address = os.path.join(place, "daemon")
        try:
            self._process = _begin(python, self.address, environment)
        except BaseException:
            _remove(self.address)
            raise
        weakref.finalize(self, _remove, self.address)  # if it dies before it has taken over

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it at once: nobody will ask for it."""
        self._process.kill()
        self._process.wait()
        _remove(self.address)

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; returns its exit code."""
        return self._process.wait(timeout_s)


def _begin(python: str, address: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        number = listener.fileno()
        return subprocess.Popen(
            [python, "-m", "millstream.spark.daemon", WORD, str(number), address],
            stdin=subprocess.PIPE,  # closed when the driver ends, however it does
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # what is wrong Java's daemon finds, too, and says
            env={**os.environ, **environment},
            pass_fds=[number],
            process_group=0,  # Ctrl-C is for the driver
        )


def _remove(address: str) -> None:
    with suppress(OSError):
        os.unlink(address)
    with suppress(OSError):
        Path(address).parent.rmdir()


# ---- Java's daemon


def hand_over() -> bool:
    """Let the one ahead do the work, and return when it has ended; False where it does not."""
    try:
        address = os.environ[ADDRESS]
        if not _is_ours(Path(address).parent):
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            socket.send_fds(connection, [b"\0"], _STREAMS)
            connection.sendall(json.dumps(_state()).encode())
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                return False
            connection.recv(1)  # nothing comes: it has ended
    except (KeyError, OSError):
        return False
    return True


def _is_ours(place: Path) -> bool:
    """Whether only this user can have put something there. Where the one ahead is gone, so is its directory,
    and anybody may have made another of that name.
    """
    found = os.lstat(place)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _state() -> dict[str, Any]:
    return {
        "python": sys.executable,
        "arguments": sys.argv,
        "path": sys.path,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }


# ---- the one ahead


def take_over(number: int, address: str) -> socket.socket | None:
    """Wait for Java's daemon and become what it is; None if the driver ends before, or it is another kind.

    The result is to be kept until the end, which it tells to Java's daemon.
    """
    with socket.socket(fileno=number) as listener:
        try:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if listener not in ready:
                return None
            connection, _ = listener.accept()
        finally:
            _remove(address)
    streams, state = _received(connection)
    if state is None or not _began_alike(state):
        connection.close()
        return None
    _become(streams, state)
    connection.sendall(b"\0")
    os.register_at_fork(after_in_child=connection.close)
    return connection


def _received(connection: socket.socket) -> tuple[list[int], dict[str, Any] | None]:
    _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
    text = b""
    while more := connection.recv(1 << 16):
        text += more
    return streams, json.loads(text) if text and len(streams) == len(_STREAMS) else None


def _began_alike(state: Mapping[str, Any]) -> bool:
    """Whether imports have found here what they would find in Java's daemon."""
    theirs: dict[str, str] = state["environment"]
    unlike = {name for name in {*theirs, *os.environ} if theirs.get(name) != os.environ.get(name)}
    return state["python"] == sys.executable and all(_is_no_matter(name) for name in unlike)


def _is_no_matter(name: str) -> bool:
    return name.startswith(_SPARKS_OWN) or name in _OF_THE_SHELL


def _become(streams: list[int], state: Mapping[str, Any]) -> None:
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(state["environment"])
    os.chdir(state["directory"])
    sys.argv[:] = state["arguments"]
    sys.path[:] = state["path"]
