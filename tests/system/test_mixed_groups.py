"""One group, members from several client libraries: every partition has one owner, and no record is missed.

Members join and leave while records are written. After each step the coordinator, and what the members
themselves were told, must agree. As the first to join leads the group, each library divides the partitions
for all the others at some time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from millstream import Admin, Producer, TopicPartition
from tests.system.foreign_members import CLIENTS, Ledger, Member
from tests.waiting import SECONDS, until

PARTITIONS = 3
RECORDS_PER_SECOND = 500


class Feed:
    """Writes on a thread of its own, to all partitions in turn, until the block ends."""

    def __init__(self, servers: str, partitions: list[TopicPartition]) -> None:
        self.written: list[tuple[TopicPartition, int]] = []
        self._servers = servers
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        sent = []
        with Producer(bootstrap_servers=self._servers) as producer:
            while not self._stop.wait(len(self._partitions) / RECORDS_PER_SECOND):
                for topic, number in self._partitions:
                    sent.append(producer.send(topic, b"x", partition=number))
            done = [future.result(SECONDS) for future in sent]
        self.written = [(each.topic_partition, each.offset) for each in done]


@pytest.fixture
def topics(bootstrap_servers: str) -> Iterator[list[str]]:
    names = [f"mixed-{letter}-{uuid.uuid4().hex}" for letter in "ab"]
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        for name in names:
            admin.create_topic(name, partitions=PARTITIONS)
        yield names
        admin.delete_topics(names)


class Group:
    """The members that take part, and what must hold between steps."""

    def __init__(self, servers: str, topics: list[str], strategy: str, clients: list[str]) -> None:
        self.ledger = Ledger()
        self.partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        self._admin = Admin(bootstrap_servers=servers)
        self._group = f"group-{uuid.uuid4().hex}"
        self._strategy = strategy
        self._members = {
            name: Member(CLIENTS[name], name, servers, self._group, topics, strategy, self.ledger)
            for name in clients
        }
        self._active: set[str] = set()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._admin.close)
            for member in self._members.values():
                stack.callback(member.stop)

    def member(self, name: str) -> Any:
        return self._members[name]

    def join(self, name: str) -> None:
        self.member(name).start()
        self._active.add(name)
        self._settle()

    def leave(self, name: str) -> None:
        self.member(name).stop()
        self._active.remove(name)
        self._settle()

    def _settle(self) -> None:
        """Wait until the coordinator and the members agree on who owns what, and each has its share."""
        until(self._is_settled, f"{self._active} settled: {self.ledger.owners()}")
        assert self.ledger.violations == []
        counts = [list(self.ledger.owners().values()).count(name) for name in self._active]
        assert max(counts) - min(counts) <= (2 if self._strategy == "range" else 1), counts

    def _is_settled(self) -> bool:
        owners = self.ledger.owners()
        if sorted(owners) != sorted(self.partitions) or set(owners.values()) != self._active:
            return False
        described = self._admin.describe_group(self._group)
        shares = [
            (partition, member.client_id) for member in described.members for partition in member.assignment
        ]
        names = sorted(member.client_id for member in described.members)
        return (
            described.state == "Stable"
            and described.assignor == self._strategy
            and names == sorted(self._active)
            and sorted(shares) == sorted(owners.items())
        )


@pytest.mark.parametrize(
    ("strategy", "clients"),
    [
        ("range", ["millstream", "confluent-kafka", "kafka-python"]),
        ("range", ["aiokafka", "millstream", "confluent-kafka"]),
        ("range", ["confluent-kafka", "millstream"]),
        ("roundrobin", ["confluent-kafka", "millstream", "kafka-python"]),
        ("roundrobin", ["millstream", "aiokafka"]),
        ("sticky", ["millstream", "kafka-python"]),
        ("sticky", ["aiokafka", "millstream"]),
        ("cooperative-sticky", ["millstream", "confluent-kafka", "kafka-python"]),
        ("cooperative-sticky", ["confluent-kafka", "millstream"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)
def test_joining_and_leaving(
    bootstrap_servers: str, topics: list[str], strategy: str, clients: list[str]
) -> None:
    with Group(bootstrap_servers, topics, strategy, clients) as group:
        with Feed(bootstrap_servers, group.partitions) as feed:
            for name in clients:
                group.join(name)
            for name in clients:  # the leader is always the next to go, and comes back as a follower
                group.leave(name)
                group.join(name)
            for name in clients[:-1]:
                group.leave(name)
        written = set(feed.written)
        until(lambda: written <= group.ledger.seen.keys(), "every record is read")
        assert written >= group.ledger.seen.keys()
    assert group.ledger.violations == []
    if not {"kafka-python", "aiokafka"} & set(clients):
        # These two run callbacks beside the loop that reads, which may still be at a batch.
        repeated = [where for where, times in group.ledger.seen.items() if times > 1]
        assert repeated == [], "members commit before they give partitions up"
