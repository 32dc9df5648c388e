"""Members of a group that are programs of their own: what they print tells a ledger what they own."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

from benchmarks.peers import java
from millstream import TopicPartition
from tests.kafka.clients import toolchains
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.system.foreign_members import HEARTBEAT_MS, SESSION_MS
from tests.waiting import SECONDS

JAVA_ASSIGNORS: Final = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_CATCH_UP_SECONDS: Final = 10.0
JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class ProcessMember:
    """One member in a process, from ``start`` to ``stop``; as often as wanted."""

    def __init__(
        self, name: str, servers: str, group: str, topic: str, strategy: str, ledger: PipedLedger
    ) -> None:
        self.name, self.servers, self.group = name, servers, group
        self.topic, self.strategy, self.ledger = topic, strategy, ledger
        self.errors: list[str] = []
        self._owned: set[TopicPartition] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._open: list[IO[bytes]] = []
        self._taking = threading.RLock()
        ledger.sources.append(self)

    # --- what each kind of client says for itself

    def command(self) -> list[str]:
        raise NotImplementedError

    def take(self, line: str) -> None:
        """A line of standard output: an event of Kafka's VerifiableConsumer."""
        if not line.startswith("{"):
            self.take_error(line)
            return
        event = json.loads(line)
        places = event.get("partitions") or ()
        match event.get("name"):
            case "partitions_assigned":
                self.assigned(_plain(each) for each in places)
            case "partitions_revoked":
                self.revoked(_plain(each) for each in places)
            case "records_consumed":
                for each in places:
                    offsets = range(each["minOffset"], each["maxOffset"] + 1)
                    self.ledger.read((_plain(each), offset) for offset in offsets)

    def take_error(self, line: str) -> None:
        self.errors.append(line)

    # --- its life

    def start(self) -> None:
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
        out, err = self._process.stdout, self._process.stderr
        assert out is not None and err is not None
        self._open = [out, err]
        streams = ((out, self.take), (err, self.take_error))
        self._readers = [threading.Thread(target=self._listen, args=stream) for stream in streams]
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Have it leave the group, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            for reader in self._readers:
                reader.join(SECONDS)
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()
        self.revoked(set(self._owned))

    # --- what it tells

    def _listen(self, stream: IO[bytes], take: Callable[[str], None]) -> None:
        begun = b""
        while stream in self._open:
            _is_readable(stream, None)
            with self._taking:
                data = os.read(stream.fileno(), 1 << 16)
                *lines, begun = (begun + (data or b"\n")).split(b"\n")
                for line in filter(None, lines):
                    take(line.decode())
                if not data:
                    self._open.remove(stream)

    def catch_up(self) -> None:
        """Let all that it has told so far be taken, unless its readers wait for the caller in turn."""
        deadline = time.monotonic() + _CATCH_UP_SECONDS
        while self._is_behind() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _is_behind(self) -> bool:
        if not self._taking.acquire(timeout=_CATCH_UP_SECONDS):
            return False
        try:
            return any(_is_readable(stream, 0) for stream in self._open)
        finally:
            self._taking.release()

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        found = set(partitions)
        self._owned |= found
        self.ledger.assigned(self.name, found)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        found = set(partitions) & self._owned
        self._owned -= found
        self.ledger.revoked(self.name, found)


class JavaMember(ProcessMember):
    """Kafka's own consumer, in VerifiableConsumer."""

    def command(self) -> list[str]:
        with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
            file.write(f"client.id={self.name}\nheartbeat.interval.ms={HEARTBEAT_MS}\n")
            file.write("fetch.max.wait.ms=100\n")
        arguments = (
            *("--bootstrap-server", self.servers, "--topic", self.topic, "--group-id", self.group),
            *("--session-timeout", str(SESSION_MS), "--consumer.config", file.name),
            *("--assignment-strategy", JAVA_ASSIGNORS[self.strategy], "--reset-policy", "earliest"),
        )
        return java("org.apache.kafka.tools.VerifiableConsumer", *arguments, options=JAVA_OPTIONS)


class FranzMember(ProcessMember):
    def command(self) -> list[str]:
        return [*toolchains.franz(), *_flags(self), "-strategy", self.strategy]


class KafkajsMember(ProcessMember):
    """It has one assignor, which is a kind of roundrobin."""

    def command(self) -> list[str]:
        return [
            *toolchains.kafkajs(),
            *(f"-{word}" if word.startswith("-") else word for word in _flags(self)),
        ]


class KcatMember(ProcessMember):
    """It tells of rebalances on standard error, in words, and commits what it has printed every second."""

    _REBALANCED: Final = re.compile(r"rebalanced .*?(assigned|revoked): (.*)")

    def command(self) -> list[str]:
        settings = {
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "client.id": self.name,
            "partition.assignment.strategy": self.strategy,
            "fetch.wait.max.ms": 100,
        }
        given = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        member = ["-b", self.servers, *given, "-u", "-f", "%t %p %o\\n", "-G", self.group, self.topic]
        return [*toolchains.kcat(), *member]

    def take(self, line: str) -> None:
        topic, number, offset = line.rsplit(" ", 2)
        self.ledger.read([(TopicPartition(topic, int(number)), int(offset))])

    def take_error(self, line: str) -> None:
        found = self._REBALANCED.search(line)
        if found is None:
            super().take_error(line)
            return
        named = re.findall(r"(\S+) \[(\d+)\]", found[2])
        partitions = {TopicPartition(topic, int(number)) for topic, number in named}
        (self.assigned if found[1] == "assigned" else self.revoked)(partitions)


def _flags(member: ProcessMember) -> Iterator[str]:
    yield from ("-servers", member.servers, "-topic", member.topic)
    yield from ("-group", member.group, "-client", member.name)


def _environment() -> dict[str, str]:
    return {**os.environ, "NODE_PATH": str(toolchains.CACHE / "kafkajs" / "node_modules")}


def run(command: list[str], text: str = "") -> str:
    """Run a program to its good end; returns what it printed."""
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
        env=_environment(),
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-1000:]} {done.stderr[-2000:]}"
    return done.stdout


def _plain(place: dict[str, Any]) -> TopicPartition:
    return TopicPartition(place["topic"], place["partition"])


def _is_readable(stream: IO[bytes], milliseconds: int | None) -> bool:
    """Whether something has come, or the end; waits so long for it, None: for ever."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(milliseconds))
