"""The parent of Python workers, started ahead of Java: it takes over, or is not missed, and never stays."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.spark import java
from millstream.spark.ahead import ADDRESS, Ahead, hand_over
from tests.waiting import SECONDS

ADDED = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "YES",
    "PYTEST_CURRENT_TEST": "the same in all processes",
}


@pytest.fixture
def ahead(short_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ahead]:
    monkeypatch.setattr("tempfile.tempdir", str(short_directory))
    found = Ahead(sys.executable, ADDED)
    try:
        yield found
    finally:
        end_driver(found)
        found.kill()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ahead-") as directory:
        yield Path(directory)


def end_driver(ahead: Ahead) -> None:
    """What is seen of it when the process that began it ends."""
    assert ahead._process.stdin is not None
    ahead._process.stdin.close()


class Java:
    """As much of it as a daemon sees: it starts one, reads its port, and closes its pipes."""

    def __init__(self, address: str, **environment: str) -> None:
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "millstream.spark.daemon", "pyspark.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ADDED, "SPARK_BUFFER_SIZE": "65536", ADDRESS: address, **environment},
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


def test_it_takes_over_and_ends_with_java(ahead: Ahead, short_directory: Path) -> None:
    with Java(ahead.address, SPARK_REUSE_WORKER="1") as started:
        port = started.port()
        assert port in listening(ahead.pid) and port not in listening(started.daemon.pid)
        assert not list(short_directory.iterdir()), "nobody else shall find it"
        end_driver(ahead)  # a driver that ends is Java's business now
        assert ahead._process.poll() is None and started.daemon.poll() is None
        started.close()
        ahead.wait(SECONDS)
        started.daemon.wait(SECONDS)


def test_it_ends_when_javas_daemon_is_ended(ahead: Ahead) -> None:
    """Java then closes its pipes, as for any process that has ended."""
    with Java(ahead.address) as started:
        started.port()
        started.daemon.terminate()
        started.daemon.wait(SECONDS)
        started.close()
        ahead.wait(SECONDS)


def test_javas_daemon_ends_when_it_is_killed(ahead: Ahead) -> None:
    """So that Java starts another."""
    with Java(ahead.address) as started:
        started.port()
        ahead._process.kill()
        started.daemon.wait(SECONDS)


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "NUMBA_CPU_NAME"])
def test_another_environment_is_left_to_java(ahead: Ahead, variable: str) -> None:
    with Java(ahead.address, **{variable: "3"}) as started:
        assert started.port() in listening(started.daemon.pid)
        ahead.wait(SECONDS)
        started.close()
        started.daemon.wait(SECONDS)


def test_javas_daemon_does_not_miss_it(ahead: Ahead) -> None:
    ahead._process.kill()
    ahead.wait(SECONDS)
    with Java(ahead.address) as started:
        assert started.port() in listening(started.daemon.pid)


def test_it_ends_with_the_driver(ahead: Ahead, short_directory: Path) -> None:
    end_driver(ahead)
    assert ahead.wait(SECONDS) == 0
    assert not list(short_directory.iterdir())


def java_ends() -> None:
    with java._start_explained():
        assert ADDRESS in os.environ
        raise RuntimeError("Java has ended")


def test_it_ends_with_a_start_that_failed(ahead: Ahead, short_directory: Path) -> None:
    with pytest.raises(MillstreamError, match="Spark does not start"), java._told_to_java(ahead):
        java_ends()
    assert ADDRESS not in os.environ
    assert ahead._process.poll() is not None and not list(short_directory.iterdir())


def test_where_it_cannot_be_started_java_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    settings = java._settings("local[2]", {}, ())
    assert java._daemon_ahead("local[2]", settings) is None
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
    monkeypatch.setattr(java, "Ahead", lambda *_: pytest.fail("it was begun"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("SPARK_HOME", home)
    assert java._daemon_ahead(master, java._settings(master, conf, ())) is None


PROGRAM = """
import os
from millstream.spark.java import load_session

spark = load_session("local[2]", queries=False, **{"spark.driver.memory": "512m"})
assert "MILLSTREAM_DAEMON_AHEAD" not in os.environ
parents = spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getppid()).collect()
assert set(parents) == {spark._ahead.pid}, (parents, spark._ahead.pid)

from pyspark.sql import SparkSession

assert SparkSession._instantiatedSession is None, "nobody has asked for a query"
assert spark.range(3).count() == 3
doubled = spark.range(3).mapInArrow(lambda batches: batches, "id LONG").collect()
assert len(doubled) == 3
assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
spark.stop()
spark._ahead.wait(60)
print("fine")
"""


def test_a_session_without_queries(tmp_path: Path) -> None:
    """Its workers come from the one ahead; and it makes a query after all."""
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment.pop("SPARK_HOME", None)
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout == "fine\n", done.stderr


def test_what_anybody_could_have_put_there_is_not_trusted(
    short_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one ahead is long gone, and its directory too: somebody else has made it again, and listens."""
    short_directory.chmod(0o755)
    address = str(short_directory / "daemon")
    monkeypatch.setenv(ADDRESS, address)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(0)
        assert not hand_over()
        with pytest.raises(BlockingIOError):
            listener.accept()
