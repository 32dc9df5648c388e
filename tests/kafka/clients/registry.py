"""The clients that are tried on the embedded broker: how each produces, and how each joins a group."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final, Protocol

from benchmarks.peers import JARS, java
from tests.kafka.clients import toolchains
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.kafka.clients.processes import (
    JAVA_OPTIONS,
    FranzMember,
    JavaMember,
    KafkajsMember,
    KcatMember,
    run,
)
from tests.kafka.not_run import not_run
from tests.kafka.server import what_is_missing
from tests.system import foreign_members
from tests.system.test_third_party import Sample, produce_aiokafka, produce_confluent, produce_kafka_python


class AnyMember(Protocol):
    """A member of a group, wherever it runs."""

    name: str

    def start(self) -> None: ...

    def stop(self) -> None: ...


MakeMember = Callable[[str, str, str, str, str, PipedLedger], AnyMember]
"""From name, servers, group, topic, strategy and ledger."""


@dataclass(frozen=True)
class Client:
    """One client library."""

    name: str
    version: Callable[[], str]
    produce: Callable[[str, str, int], None]
    """To servers and topic, so many records."""
    member: MakeMember
    strategy: str = "range"
    needs: Callable[[], object] = lambda: None
    """Leaves the test out where the machine lacks the client."""
    waits_for_brokers: bool = True
    """Whether it goes on when all brokers were away; kcat ends then, by design."""


def _thread_member(
    run_client: Callable[[foreign_members.Member], None],
    name: str,
    servers: str,
    group: str,
    topic: str,
    strategy: str,
    ledger: PipedLedger,
) -> AnyMember:
    return foreign_members.Member(run_client, name, servers, group, [topic], strategy, ledger)


def _samples(count: int) -> list[Sample]:
    return [Sample(f"key-{number}".encode(), b"value") for number in range(count)]


def _needs_java() -> None:
    if missing := what_is_missing():
        not_run("the Java clients", missing)


def _produce_java(servers: str, topic: str, count: int) -> None:
    arguments = ("--bootstrap-server", servers, "--topic", topic, "--max-messages", str(count))
    printed = run(java("org.apache.kafka.tools.VerifiableProducer", *arguments, options=JAVA_OPTIONS))
    assert json.loads(printed.splitlines()[-1])["acked"] == count


def _produce_kcat(servers: str, topic: str, count: int) -> None:
    lines = "".join(f"key-{number}:value\n" for number in range(count))
    run([*toolchains.kcat(), "-b", servers, "-t", topic, "-P", "-K:"], lines)


def _produce_franz(servers: str, topic: str, count: int) -> None:
    run([*toolchains.franz(), "-servers", servers, "-topic", topic, "-produce", str(count)])


def _produce_kafkajs(servers: str, topic: str, count: int) -> None:
    run([*toolchains.kafkajs(), "--servers", servers, "--topic", topic, "--produce", str(count)])


def _kafkajs_version() -> str:
    found: str = json.loads((toolchains.HERE / "kafkajs" / "package.json").read_text())["dependencies"][
        "kafkajs"
    ]
    return found


def _franz_version() -> str:
    lines = (toolchains.HERE / "franz" / "go.mod").read_text().splitlines()
    return next(line.split()[-1] for line in lines if "twmb/franz-go v" in line).lstrip("v")


def _java_version() -> str:
    (jar,) = JARS.glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def _kcat_version() -> str:
    return run([*toolchains.kcat(), "-V"]).split("Version ")[1].split()[0]


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(
            "confluent-kafka",
            partial(version, "confluent-kafka"),
            lambda servers, topic, count: produce_confluent(servers, topic, "lz4", _samples(count)),
            partial(_thread_member, foreign_members.run_confluent),
        ),
        Client(
            "aiokafka",
            partial(version, "aiokafka"),
            lambda servers, topic, count: produce_aiokafka(servers, topic, "none", _samples(count)),
            partial(_thread_member, foreign_members.run_aiokafka),
        ),
        Client(
            "kafka-python",
            partial(version, "kafka-python"),
            lambda servers, topic, count: produce_kafka_python(servers, topic, "gzip", _samples(count)),
            partial(_thread_member, foreign_members.run_kafka_python),
        ),
        Client("Java", _java_version, _produce_java, JavaMember, needs=_needs_java),
        Client(
            "kcat", _kcat_version, _produce_kcat, KcatMember, needs=toolchains.kcat, waits_for_brokers=False
        ),
        Client(
            "franz-go",
            _franz_version,
            _produce_franz,
            FranzMember,
            strategy="cooperative-sticky",
            needs=toolchains.franz,
        ),
        Client(
            "kafkajs",
            _kafkajs_version,
            _produce_kafkajs,
            KafkajsMember,
            strategy="RoundRobinAssigner",
            needs=toolchains.kafkajs,
        ),
    )
}
