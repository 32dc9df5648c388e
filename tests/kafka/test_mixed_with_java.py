"""One group with members of three kinds: ours, Java's and librdkafka's, on both brokers.

Each leads at some time, and so divides the partitions for the others. After each step the coordinator and
what the members themselves were told must agree. (More libraries: tests/system/test_mixed_groups.py.)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from millstream import Admin, TopicPartition
from tests.kafka import brokers
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.kafka.clients.processes import JavaMember
from tests.kafka.not_run import not_run
from tests.kafka.server import what_is_missing
from tests.system.foreign_members import CLIENTS, Member
from tests.system.test_mixed_groups import Feed, Group
from tests.waiting import until

PARTITIONS = 6


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


@pytest.fixture
def topic(bootstrap_servers: str) -> Iterator[str]:
    name = f"mixed-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
        yield name
        admin.delete_topics([name])


class GroupWithJava(Group):
    """Takes a Java member in, too, which reads one topic."""

    def __init__(self, servers: str, topic: str, strategy: str, clients: list[str]) -> None:
        super().__init__(servers, [topic], strategy, [name for name in clients if name in CLIENTS])
        self.partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ledger = self.ledger = PipedLedger()
        for member in self._members.values():
            member.ledger = ledger
        self._java = JavaMember("Java", servers, self._group, topic, strategy, ledger)

    def member(self, name: str) -> Member | JavaMember:
        return self._java if name == "Java" else super().member(name)

    def __exit__(self, *details: object) -> None:
        self._java.stop()
        super().__exit__(*details)


@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        ("range", ["millstream", "Java", "confluent-kafka"]),
        ("roundrobin", ["Java", "confluent-kafka", "millstream"]),
        ("sticky", ["millstream", "Java"]),
        ("cooperative-sticky", ["confluent-kafka", "Java", "millstream"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_ownership_is_exact_at_each_step(
    bootstrap_servers: str, topic: str, strategy: str, clients: list[str]
) -> None:
    if missing := what_is_missing():
        not_run("the Java clients", missing)
    with GroupWithJava(bootstrap_servers, topic, strategy, clients) as group:
        with Feed(bootstrap_servers, group.partitions) as feed:
            for name in clients:
                group.join(name)
            group.leave(clients[0])  # the leader
            group.join(clients[0])
            for name in clients[:-1]:
                group.leave(name)
        written = set(feed.written)
        until(lambda: written <= group.ledger.seen.keys(), "every record is read")
        assert written >= group.ledger.seen.keys()
    assert group.ledger.violations == []
