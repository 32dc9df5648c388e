"""Starts the parent process of Spark's Python workers beside Java, instead of from it.

Java starts that process (``millstream.spark.daemon``) for its first Python task, which then waits for all
imports. So the driver starts one that imports while Java is still starting. Java's own daemon, when it comes,
hands over to the prestarted one:

    driver ─▶ Java ──────────── first task ─▶ its daemon: hand_over, then wait for the other to end
       └────▶ prestarted daemon: imports ─ waits ─▶ take_over: forks workers, as Java asks

Java talks to its daemon through the standard streams. They are passed on, with all that a process inherits:
environment, directory, limits, signals. When Java or its daemon ends, Java's end of the streams is closed,
which ends the prestarted daemon. If the prestarted one is missing, or differs from Java's in anything that
cannot be changed later, Java's daemon does the work itself.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
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

from millstream.spark.runtime.launch import ended_with_program

ADDRESS_VARIABLE: Final = "MILLSTREAM_PRESTARTED_DAEMON"
"""The environment variable with the socket of the prestarted daemon, for Java's daemon."""
FLAG: Final = "--prestarted"
"""The first argument of the prestarted daemon."""

_STREAMS: Final = (0, 1, 2)
_SPARK_PREFIXES: Final = (
    *("JAVA_HOME", "MILLSTREAM_", "PYSPARK_", "SPARK_", "_PYSPARK_"),
    *("PYTHON_DAEMON_", "PYTHON_FAULTHANDLER_", "PYTHON_TRACEBACK_", "PYTHON_UDF_", "PYTHON_UNIX_"),
    "PYTHON_WORKER_",
)
"""Prefixes of variables that Spark sets for its workers. No import reads them, with these exceptions."""
_READ_BY_IMPORTS: Final = ("PYSPARK_ENABLE_NAMEDTUPLE_PATCH", "SPARK_TESTING")
_IRRELEVANT: Final = ("OLDPWD", "PWD", "PYTHONPATH", "SHLVL", "_")
"""Variables of a shell, and PYTHONPATH, which is compared by its effect on ``sys.path``."""
_END_SECONDS: Final = 5.0
_LIMITS: Final = tuple(name for name in dir(resource) if name.startswith("RLIMIT_"))


class PrestartedDaemon:
    """A daemon that imports and waits. Unless it has taken over, it ends soon after this process does."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        """``environment``: what Java adds for its daemon. Raises OSError if the daemon cannot be started."""
        directory = tempfile.mkdtemp(prefix="millstream-")  # only this user may enter it
        self.address = address = os.path.join(directory, "daemon")
        try:
            with ended_with_program(lambda: _remove(address)):
                self._process = _start(python, self.address, environment)
        except BaseException:
            _remove(self.address)
            raise
        weakref.finalize(self, _remove, self.address)  # if it dies before it takes over

    def kill(self) -> None:
        """End it at once, if Java will not use it."""
        self._process.kill()
        self._process.wait()
        _remove(self.address)

    def wait(self, timeout_s: float) -> int:
        """Wait until it has ended; returns its exit code."""
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """Wait for its end after Spark has stopped; kill it if it has not taken over."""
        if os.path.exists(self.address):  # it has not taken over
            self.kill()
        else:
            with suppress(subprocess.TimeoutExpired):
                self.wait(_END_SECONDS)


def _start(python: str, address: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        number = listener.fileno()
        return subprocess.Popen(
            [python, "-m", "millstream.spark.daemon", FLAG, str(number), address],
            stdin=subprocess.PIPE,  # closed when the driver ends in any way
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # Java's daemon fails in the same way, and reports it
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
    """Let the prestarted daemon do the work, and return when it has ended; False if it does not."""
    try:
        address = os.environ[ADDRESS_VARIABLE]
        if not _is_ours(Path(address).parent):
            return False
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            socket.send_fds(connection, [b"\0"], _STREAMS)
            connection.sendall(json.dumps(_state()).encode())
            connection.shutdown(socket.SHUT_WR)
            if not connection.recv(1):
                return False
            os.setpgid(0, 0)  # as Spark's daemon does: Ctrl-C is not for this process
            connection.recv(1)  # returns when the other has ended
    except (KeyError, OSError):
        return False
    return True


def _is_ours(directory: Path) -> bool:
    """Whether only this user can write there.

    The directory of a prestarted daemon that has ended is gone, and another user may have created one of
    that name.
    """
    found = os.lstat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _state() -> dict[str, Any]:
    """What a process inherits from its parent."""
    return {
        "python": sys.executable,
        "arguments": sys.argv,
        "path": sys.path,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
        "mask": _file_mask(),
        "niceness": os.nice(0),
        "processors": _processors(),
        "ignored": [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN],
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }


def _file_mask() -> int:
    mask = os.umask(0o077)  # there is no other way to read it
    os.umask(mask)
    return mask


def _processors() -> list[int] | None:
    """The processors that this process may run on; None where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


# ---- the prestarted daemon


def take_over(number: int, address: str) -> socket.socket | None:
    """Wait for Java's daemon and take its place. None if the driver ends first, or the two differ.

    Keep the connection open until the end: closing it tells Java's daemon to end.
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
    if state is None or not _imported_alike(state) or not _take_limits(state["limits"]):
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


def _imported_alike(state: Mapping[str, Any]) -> bool:
    """Whether imports found what they would find in Java's daemon, and what cannot change is the same."""
    theirs: dict[str, str] = state["environment"]
    differing = {name for name in {*theirs, *os.environ} if theirs.get(name) != os.environ.get(name)}
    ours = _state()
    return (
        all(_is_irrelevant(name) for name in differing)
        and all(state[name] == ours[name] for name in ("python", "directory", "niceness", "processors"))
        and _same_path(state["path"], theirs.get("SPARK_HOME", ""))
    )


def _is_irrelevant(name: str) -> bool:
    return name in _IRRELEVANT or (name.startswith(_SPARK_PREFIXES) and name not in _READ_BY_IMPORTS)


def _same_path(path: list[str], home: str) -> bool:
    """Whether ``path`` differs from ``sys.path`` only by Java's copy of the same PySpark.

    Java puts archives of its own Spark first. This process imports Spark from its directory.
    """
    if not home:
        return path == sys.path
    of_spark = tuple(os.path.join(home, part, "") for part in ("python/lib", "jars"))
    return _is_our_pyspark(home) and [each for each in path if not each.startswith(of_spark)] == sys.path


def _is_our_pyspark(home: str) -> bool:
    from pyspark import __file__ as found

    try:
        return os.path.samefile(os.path.dirname(found), home)
    except OSError:
        return False


def _take_limits(theirs: Mapping[str, tuple[int, int]]) -> bool:
    """Set these resource limits; False if that is not allowed. Java raises its limit of open files."""
    try:
        for name, (soft, hard) in theirs.items():
            number = getattr(resource, name)
            if resource.getrlimit(number) != (soft, hard):
                resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError):
        return False
    return True


def _become(streams: list[int], state: Mapping[str, Any]) -> None:
    for number, stream in zip(_STREAMS, streams, strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(state["environment"])
    os.umask(state["mask"])
    for number in state["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, state["blocked"])
    sys.argv[:] = state["arguments"]
    sys.path[:] = state["path"]
