"""Real Spark processes from the pip package: a master and its workers, or a Connect server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from benchmarks.peers import free_port
from millstream.spark.runtime.java import ensure_java
from tests.waiting import until

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Tests run nothing long enough for more: Java then starts with half of the work."""
UNHURRIED = {"spark.python.authenticate.socketTimeout": "200s"}
"""How long Java and Python wait for each other to connect: a busy machine may need more than 15 seconds."""
HOME = Path(pyspark.__file__).parent
SECONDS = 200.0
"""How long a process of Java may take to start, several at a time, on a busy machine."""

Process = subprocess.Popen[bytes]


@dataclass
class Standalone:
    """A cluster: the master's address, and the processes of the workers, in whose groups executors run."""

    address: str
    master: Process
    workers: list[Process] = field(default_factory=list)
    add_worker: Callable[[], None] = lambda: None
    """Start one more worker, and wait until the master knows it."""


def python_without_millstream(place: Path) -> str:
    """An interpreter with all that is installed here but millstream itself, as on a worker's machine."""
    path = place / "python"
    packages = os.pathsep.join(each for each in sys.path if each.endswith(("site-packages", "dist-packages")))
    # Without site no .pth file is read, and that is how millstream is installed for development.
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n',
    )
    path.chmod(0o755)
    return str(path)


@contextmanager
def running(place: Path, name: str, *arguments: str, **environment: str) -> Iterator[Process]:
    """A Spark process in a group of its own, which is ended with all that it has started."""
    ensure_java()
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))
    }
    variables = {
        **inherited,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        **environment,
    }
    with (place / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *arguments],
            env=variables,
            cwd=place,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        end(process)


def end(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(SECONDS)


def wait_for_line(place: Path, name: str, text: str, process: Process) -> None:
    log = place / f"{name}.log"

    def found() -> bool:
        return text in log.read_text(errors="replace")

    until(
        lambda: found() or process.poll() is not None,
        lambda: f"{text!r} from {name}: {log.read_text(errors='replace')[-3000:]}",
        SECONDS,
    )
    assert found(), log.read_text(errors="replace")[-3000:]


@contextmanager
def standalone(
    place: Path,
    workers: int = 2,
    memory: str = "700m",
    hosts: Sequence[str] = ("127.0.0.1",),
    **environment: str,
) -> Iterator[Standalone]:
    """A master, and workers of one core each.

    ``hosts`` are names of this machine that the workers use in turns: Spark runs no second attempt of a task
    on the host of the first.
    """
    port = free_port()
    environment.setdefault("SPARK_DAEMON_MEMORY", "256m")
    with ExitStack() as stack:

        def start(name: str, kind: str, host: str, *arguments: str) -> Process:
            main = f"org.apache.spark.deploy.{kind}"
            common = ("--host", host, "--webui-port", "0")
            return stack.enter_context(running(place, name, main, *common, *arguments, **environment))

        master = start("master", "master.Master", "127.0.0.1", "--port", str(port))
        cluster = Standalone(f"spark://127.0.0.1:{port}", master)
        wait_for_line(place, "master", "I have been elected leader", master)

        def begin_worker() -> tuple[str, Process]:
            name = f"worker-{len(cluster.workers)}"
            own = ("--cores", "1", "--memory", memory, "--work-dir", str(place / name))
            host = hosts[len(cluster.workers) % len(hosts)]
            cluster.workers.append(start(name, "worker.Worker", host, *own, cluster.address))
            return name, cluster.workers[-1]

        def known(name: str, worker: Process) -> None:
            wait_for_line(place, name, "Successfully registered with master", worker)

        cluster.add_worker = lambda: known(*begin_worker())
        for name, worker in [begin_worker() for _ in range(workers)]:  # at the same time
            known(name, worker)
        yield cluster


@contextmanager
def connect_server(place: Path, conf: dict[str, str] | None = None, **environment: str) -> Iterator[str]:
    """A Connect server on two cores of this machine; gives its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        **UNHURRIED,
        **(conf or {}),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ("--master", "local[2]", *options, "--class", main, "spark-internal")
    with running(
        place, "connect", "org.apache.spark.deploy.SparkSubmit", *arguments, **environment
    ) as server:
        wait_for_line(place, "connect", "Spark Connect server started", server)
        yield f"sc://127.0.0.1:{port}"
