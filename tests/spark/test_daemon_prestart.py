"""The prestarted daemon takes over, or Java does without it, and it never outlives both."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from millstream.errors import MillstreamError
from millstream.spark.runtime import session
from millstream.spark.runtime.prestart import (
    ADDRESS_VARIABLE,
    PrestartedDaemon,
    _imported_alike,
    _state,
    _take_limits,
    hand_over,
)
from tests.waiting import SECONDS

ADDED = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "YES",
    "PYTEST_CURRENT_TEST": "the same in all processes",
}


@pytest.fixture
def prestarted(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrestartedDaemon]:
    monkeypatch.setattr("tempfile.tempdir", str(short_directory))
    found = PrestartedDaemon(sys.executable, ADDED)
    try:
        yield found
    finally:
        end_driver(found)
        found.kill()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="pre-") as directory:
        yield Path(directory)


def end_driver(prestarted: PrestartedDaemon) -> None:
    """What is seen of it when the process that began it ends."""
    assert prestarted._process.stdin is not None
    prestarted._process.stdin.close()


class Java:
    """As much of it as a daemon sees: it starts one, reads its port, and closes its pipes."""

    def __init__(self, address: str, *, first: str = "", **environment: str) -> None:
        """``first`` is what its process does before it becomes the daemon."""
        become = f"{first}\nimport os, sys\nos.execv(sys.argv[1], sys.argv[1:])"
        daemon = [sys.executable, "-m", "millstream.spark.daemon", "pyspark.worker"]
        self.daemon = subprocess.Popen(
            [sys.executable, "-c", become, *daemon] if first else daemon,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **ADDED,
                "SPARK_BUFFER_SIZE": "65536",
                ADDRESS_VARIABLE: address,
                **environment,
            },
        )

    def __enter__(self) -> Java:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.daemon.kill()
        self.daemon.wait()

    def port(self) -> int:
        assert self.daemon.stdout is not None
        number: int = struct.unpack(">i", self.daemon.stdout.read(4))[0]
        return number

    def close(self) -> None:
        for pipe in (self.daemon.stdin, self.daemon.stdout):
            assert pipe is not None
            pipe.close()


def listening(pid: int) -> set[int]:
    """The TCP ports that a process listens at."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(each))
        except FileNotFoundError:  # closed meanwhile
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {
        int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    }


def test_it_takes_over_and_ends_with_java(prestarted: PrestartedDaemon, short_directory: Path) -> None:
    with Java(prestarted.address, SPARK_REUSE_WORKER="1") as started:
        port = started.port()
        assert port in listening(prestarted._process.pid) and port not in listening(started.daemon.pid)
        assert not list(short_directory.iterdir()), "no other process must find it"
        end_driver(prestarted)  # a driver that ends is Java's business now
        assert prestarted._process.poll() is None and started.daemon.poll() is None
        started.close()
        prestarted.wait(SECONDS)
        started.daemon.wait(SECONDS)


def test_it_ends_when_javas_daemon_is_ended(prestarted: PrestartedDaemon) -> None:
    """Java then closes its pipes, as for any process that has ended."""
    with Java(prestarted.address) as started:
        started.port()
        started.daemon.terminate()
        started.daemon.wait(SECONDS)
        started.close()
        prestarted.wait(SECONDS)


def test_javas_daemon_ends_when_it_is_killed(prestarted: PrestartedDaemon) -> None:
    """So that Java starts another."""
    with Java(prestarted.address) as started:
        started.port()
        prestarted._process.kill()
        started.daemon.wait(SECONDS)


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "NUMBA_CPU_NAME"])
def test_another_environment_is_left_to_java(prestarted: PrestartedDaemon, variable: str) -> None:
    with Java(prestarted.address, **{variable: "3"}) as started:
        assert started.port() in listening(started.daemon.pid)
        prestarted.wait(SECONDS)
        started.close()
        started.daemon.wait(SECONDS)


def test_javas_daemon_does_not_miss_it(prestarted: PrestartedDaemon) -> None:
    prestarted._process.kill()
    prestarted.wait(SECONDS)
    with Java(prestarted.address) as started:
        assert started.port() in listening(started.daemon.pid)


def test_it_ends_with_the_driver(prestarted: PrestartedDaemon, short_directory: Path) -> None:
    end_driver(prestarted)
    assert prestarted.wait(SECONDS) == 0
    assert not list(short_directory.iterdir())


def java_ends() -> None:
    with session._start_explained():
        assert ADDRESS_VARIABLE in os.environ
        raise RuntimeError("Java has ended")


def test_it_ends_with_a_start_that_failed(prestarted: PrestartedDaemon, short_directory: Path) -> None:
    with pytest.raises(MillstreamError, match="Spark does not start"), session._daemon_address(prestarted):
        java_ends()
    assert ADDRESS_VARIABLE not in os.environ
    assert prestarted._process.poll() is not None and not list(short_directory.iterdir())


def test_where_it_cannot_be_started_java_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    settings = session._settings("local[2]", {}, ())
    assert session._prestart_daemon("local[2]", settings) is None
    assert not list(long.iterdir())


@pytest.mark.parametrize(
    ("master", "conf", "home"),
    [
        ("spark://other:7077", {}, None),
        ("local", {"spark.python.daemon.module": "mine"}, None),
        ("local", {}, "/opt/spark"),
    ],
)
def test_another_daemon_is_not_begun(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], home: str | None
) -> None:
    monkeypatch.setattr(session, "PrestartedDaemon", lambda *_: pytest.fail("it was begun"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("SPARK_HOME", home)
    assert session._prestart_daemon(master, session._settings(master, conf, ())) is None


PROGRAM = """
import os
from millstream.spark.runtime.session import load_session

spark = load_session("local[2]", queries=False, **{"spark.driver.memory": "512m"})
assert "MILLSTREAM_PRESTARTED_DAEMON" not in os.environ
parents = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getppid()).collect()
assert set(parents) == {spark._daemon._process.pid}, (parents, spark._daemon._process.pid)

from pyspark.sql import SparkSession

assert SparkSession._instantiatedSession is None, "nobody has asked for a query"
assert spark.range(3).count() == 3
doubled = spark.range(3).mapInArrow(lambda batches: batches, "id LONG").collect()
assert len(doubled) == 3
assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
spark.stop()
spark._daemon.wait(60)
print("fine")
"""


def test_a_session_without_queries(tmp_path: Path) -> None:
    """Its workers come from the prestarted daemon, and it runs a query after all."""
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout == "fine\n", done.stderr


def test_what_anybody_could_have_put_there_is_not_trusted(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prestarted daemon is long gone, with its directory: another user has recreated it, and listens."""
    short_directory.chmod(0o755)
    address = str(short_directory / "daemon")
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(0)
        assert not hand_over()
        with pytest.raises(BlockingIOError):
            listener.accept()


# -- a prestarted daemon is used only if it is what Java would have started


def limits_of(pid: int, kind: str) -> list[str]:
    """The soft and the hard limit of a process."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith(kind))[len(kind) :].split()[:2]


def test_it_takes_the_limits_of_javas_daemon(prestarted: PrestartedDaemon) -> None:
    """Java raises the number of open files as far as it may, and its children have that."""
    hard = limits_of(os.getpid(), "Max open files")[1]
    first = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (321, {hard}))"
    with Java(prestarted.address, first=first) as started:
        assert started.port() in listening(prestarted._process.pid)
        assert limits_of(prestarted._process.pid, "Max open files") == ["321", hard]


def test_it_takes_the_signals_and_the_mask_of_javas_daemon(prestarted: PrestartedDaemon) -> None:
    """PySpark has its Java ignore Ctrl-C, and Java blocks a signal."""
    first = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
os.umask(0o027)
"""
    with Java(prestarted.address, first=first) as started:
        assert started.port() in listening(prestarted._process.pid)
        lines = Path(f"/proc/{prestarted._process.pid}/status").read_text().splitlines()
        status = {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}
        assert int(status["SigIgn"], 16) & 1 << signal.SIGINT - 1
        assert int(status["SigBlk"], 16) == 1 << signal.SIGQUIT - 1
        assert int(status["Umask"], 8) == 0o027


@pytest.mark.parametrize("name", ["python", "directory", "niceness", "processors"])
def test_what_cannot_be_made_alike_is_left_to_java(name: str) -> None:
    state = _state()
    assert _imported_alike(state)
    assert not _imported_alike({**state, name: "another"})


def test_limits_that_must_not_be_raised_are_left_to_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert _take_limits({"RLIMIT_NOFILE": resource.getrlimit(resource.RLIMIT_NOFILE)})
    assert not _take_limits({"RLIMIT_NOFILE": (1, 1)})


@pytest.mark.parametrize(
    "variable",
    ["PYTHON_GIL", "PYSPARK_ENABLE_NAMEDTUPLE_PATCH", "SPARK_TESTING", "_MINE", "LD_PRELOAD"],
)
def test_other_variables_are_left_to_java(variable: str) -> None:
    state = _state()
    assert not _imported_alike({**state, "environment": {**state["environment"], variable: "1"}})


def test_another_path_is_left_to_java() -> None:
    """As of spark.executorEnv.PYTHONPATH: what is found there may be another than what was imported."""
    state = _state()
    assert not _imported_alike({**state, "path": [state["path"][0], "/mine", *state["path"][1:]]})


def test_another_spark_is_left_to_java(tmp_path: Path) -> None:
    state = _state()
    assert not _imported_alike(
        {**state, "environment": {**state["environment"], "SPARK_HOME": str(tmp_path)}}
    )


def test_javas_own_archives_of_the_same_spark_are_no_difference(prestarted: PrestartedDaemon) -> None:
    home = Path(pyspark.__file__).parent
    archives = [*(home / "python" / "lib").glob("*.zip"), *(home / "jars").glob("spark-core_*.jar")]
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*map(str, archives), *([inherited] if inherited else [])])
    with Java(prestarted.address, SPARK_HOME=str(home), PYTHONPATH=path) as started:
        assert started.port() in listening(prestarted._process.pid)


@pytest.mark.parametrize(
    ("master", "conf", "environment"),
    [
        ("local", {"spark.python.use.daemon": False}, {}),
        ("local", {"spark.executorEnv.PYTHONPATH": "/mine"}, {}),
        ("local-cluster[1,1,512]", {}, {}),
        ("local", {}, {"PYSPARK_GATEWAY_PORT": "1234"}),
    ],
)
def test_it_is_not_begun_where_java_would_not_begin_the_same(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, object], environment: dict[str, str]
) -> None:
    monkeypatch.setattr(session, "PrestartedDaemon", lambda *_: pytest.fail("it was begun"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert session._prestart_daemon(master, session._settings(master, conf, ())) is None


def test_it_begins_with_the_environment_of_sparks_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is in no setting of this program's alone: Spark decides about some of it."""
    begun: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(session, "PrestartedDaemon", lambda *given: begun.append(given))
    for name in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    conf = {"spark.executorEnv.TZ": "UTC", "spark.task.cpus": 2, "spark.pyspark.python": "/usr/bin/other"}
    session._prestart_daemon("local[4]", session._settings("local[4]", conf, ()))
    wanted = {"OMP_NUM_THREADS": "2", "TZ": "UTC", "PYTHONHASHSEED": "5", "PYTHONUNBUFFERED": "YES"}
    assert begun == [("/opt/python", wanted)]


def test_one_that_is_unused_ends_with_the_session(
    prestarted: PrestartedDaemon, short_directory: Path
) -> None:
    prestarted.close()
    assert prestarted._process.poll() is not None and not list(short_directory.iterdir())


def test_one_that_has_taken_over_is_left_to_spark(prestarted: PrestartedDaemon) -> None:
    with Java(prestarted.address) as started:
        started.port()
        started.daemon.terminate()
        started.daemon.wait(SECONDS)
        started.close()
        prestarted.close()
        assert prestarted._process.returncode in (0, 1), "it was not killed"
