"""The brokers that are measured: ours and Apache Kafka, each a process of its own with a fresh directory."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
KAFKA_VERSION = os.environ.get("MILLSTREAM_KAFKA_VERSION", "4.3.1")
"""Which Apache Kafka to run: any release in Maven's repository, such as 4.1.0."""
KAFKA = f"Apache Kafka {KAFKA_VERSION.rpartition('.')[0]}"
JARS = HERE / ".kafka" / KAFKA_VERSION
START_SECONDS = 120.0


def fetch_jars() -> bool:
    """Have Maven bring Apache Kafka, once. False where there is no Maven or no Java."""
    if shutil.which("java") is None:
        return False
    if JARS.is_dir() and any(JARS.glob("kafka_2.13-*.jar")):
        return True
    if shutil.which("mvn") is None:
        return False
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    command.append(f"-Dkafka.version={KAFKA_VERSION}")
    subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.DEVNULL)
    return True


def java(main: str, *arguments: str, heap: str = "512m", options: Sequence[str] = ()) -> list[str]:
    """The command line of a Java tool of Kafka's; ``options`` are the virtual machine's."""
    return ["java", f"-Xmx{heap}", *options, "-cp", f"{JARS}/*", main, *arguments]


_given_ports: set[int] = set()


def free_port() -> int:
    """A port for a server that starts later; no two calls return the same one.

    It is below those that the system gives to outgoing connections, one of which could have it by then.
    """
    try:
        end = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        end = 0  # not Linux
    while True:
        wanted = random.SystemRandom().randrange(10_000, end) if end > 20_000 else 0
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", wanted)) as server:
            port: int = server.getsockname()[1]
            if port not in _given_ports:
                _given_ports.add(port)
                return port


class BrokerProcess(AbstractContextManager["BrokerProcess"]):
    """A broker that can be started, stopped and started again on the same directory."""

    name: str

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> None:
        """What has to be done once, before the first start."""

    def start(self) -> float:
        """Start; returns the seconds until the first request was answered."""
        began = time.perf_counter()
        log = (self.directory / "broker.log").open("ab")
        self.process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        log.close()
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                raise RuntimeError(f"{self.name} did not start: see {self.directory}/broker.log")
            time.sleep(0.002)
        return time.perf_counter() - began

    def _answers(self) -> bool:
        """Whether an ApiVersions request (version 0) is answered."""
        request = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as sock:
                sock.sendall(request)
                return len(sock.recv(4)) == 4
        except OSError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Millstream(BrokerProcess):
    name = "millstream"

    def command(self) -> list[str]:
        data = str(self.directory / "data")
        listen = f"127.0.0.1:{self.port}"
        return [sys.executable, "-m", "millstream", "broker", "--data", data, "--listen", listen]


class ApacheKafka(BrokerProcess):
    """``settings`` go into its server.properties, ``options`` to its virtual machine.

    ``listeners`` are further ones, by name: each with its port and security protocol. ``users`` are the
    SCRAM users that exist from the start, as StorageTool writes them.
    """

    name = KAFKA

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        options: Sequence[str] = (),
        listeners: Mapping[str, tuple[int, str]] | None = None,
        users: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._settings = settings or {}
        self._options = options
        self._listeners = listeners or {}
        self._users = users

    def prepare(self) -> None:
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in self._all().items()))
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        users = [word for user in self._users for word in ("--add-scram", user)]
        arguments = ("format", "-t", cluster, "-c", str(self._properties), *users)
        command = java("kafka.tools.StorageTool", *arguments, options=self._options)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _all(self) -> dict[str, object]:
        controller = free_port()
        plain = {"PLAINTEXT": (self.port, "PLAINTEXT"), "CONTROLLER": (controller, "PLAINTEXT")}
        listeners = {**plain, **self._listeners}
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, (port, _) in listeners.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, (_, protocol) in listeners.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{self.directory}/data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self._settings,
        }

    @property
    def _properties(self) -> Path:
        return self.directory / "server.properties"

    def command(self) -> list[str]:
        return java("kafka.Kafka", str(self._properties), heap="1G", options=self._options)
