"""The parent of Spark's Python workers, started beside Java instead of by it.

Java starts that process (``daemon``) when it has a first task for Python, and the task then waits for all
that workers import. So the driver starts one that imports it while Java is still starting; Java's own, when
it comes, hands over to that one:

    driver ─▶ Java ───────────── a first task ─▶ its daemon: hand_over, and wait for the other's end
       └────▶ the daemon ahead: imports ─ waits ─▶ take_over: forks workers, as Java asks

Java talks to its daemon through the standard streams. They are passed on, with all that a process has from
its parent: environment, directory, limits, signals. When Java ends, or its daemon does, Java's end of the
streams is closed, and that ends the one ahead. Where the one ahead is missing, or began with anything that
makes it another than Java's and cannot be changed later, Java's does the work itself.
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

ADDRESS: Final = "MILLSTREAM_DAEMON_AHEAD"
"""The variable by which Java's daemon is told where the one ahead listens."""
WORD: Final = "--ahead"
"""The first argument of the one ahead."""

_STREAMS: Final = (0, 1, 2)
_SPARKS_OWN: Final = (
    *("JAVA_HOME", "MILLSTREAM_", "PYSPARK_", "SPARK_", "_PYSPARK_"),
    *("PYTHON_DAEMON_", "PYTHON_FAULTHANDLER_", "PYTHON_TRACEBACK_", "PYTHON_UDF_", "PYTHON_UNIX_"),
    "PYTHON_WORKER_",
)
"""How variables begin that Spark sets for its workers. No import looks at them, but for these exceptions."""
_IMPORTS_LOOK_AT: Final = ("PYSPARK_ENABLE_NAMEDTUPLE_PATCH", "SPARK_TESTING")
_ANYWAY: Final = ("OLDPWD", "PWD", "PYTHONPATH", "SHLVL", "_")
"""Those of a shell, and one that is looked at as what it makes of ``sys.path``."""
_END_SECONDS: Final = 5.0
_LIMITS: Final = tuple(name for name in dir(resource) if name.startswith("RLIMIT_"))


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

    def close(self) -> None:
        """See to its end when Spark has stopped, which ends the one that has taken over."""
        if os.path.exists(self.address):  # nobody has asked for it
            self.kill()
        else:
            with suppress(subprocess.TimeoutExpired):
                self.wait(_END_SECONDS)


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
            os.setpgid(0, 0)  # as a daemon of Spark's: what is typed at a terminal is for others
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
    """What a process is given by its parent."""
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
    mask = os.umask(0o077)  # there is no other way to ask for it
    os.umask(mask)
    return mask


def _processors() -> list[int] | None:
    """Those that the process may run on; None on a system that does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


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
    if state is None or not _began_alike(state) or not _limit_alike(state["limits"]):
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
    """Whether imports have found here what they would find in Java's daemon, and what stays is the same."""
    theirs: dict[str, str] = state["environment"]
    unlike = {name for name in {*theirs, *os.environ} if theirs.get(name) != os.environ.get(name)}
    ours = _state()
    return (
        all(_is_no_matter(name) for name in unlike)
        and all(state[name] == ours[name] for name in ("python", "directory", "niceness", "processors"))
        and _imports_alike(state["path"], theirs.get("SPARK_HOME", ""))
    )


def _is_no_matter(name: str) -> bool:
    return name in _ANYWAY or (name.startswith(_SPARKS_OWN) and name not in _IMPORTS_LOOK_AT)


def _imports_alike(path: list[str], home: str) -> bool:
    """Whether ``path`` differs from ours only by Java's copy of the PySpark that we have.

    In front of all others, Java puts archives of its own Spark. Ours is read from its directory.
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


def _limit_alike(theirs: Mapping[str, tuple[int, int]]) -> bool:
    """Take their limits; whether that is allowed. Java raises that of open files as far as it may."""
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
