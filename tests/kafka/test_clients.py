"""Other people's clients on the embedded broker: each lives through what a group lives through."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers import java
from millstream import Admin, EmbeddedBroker, TopicPartition
from tests.kafka.clients.piped_ledger import PipedLedger
from tests.kafka.clients.processes import JAVA_OPTIONS, run
from tests.kafka.clients.registry import CLIENTS, AnyMember, Client
from tests.kafka.compatibility import HINT, clients_on_page, marks
from tests.kafka.results import record
from tests.waiting import until

PARTITIONS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data=tmp_path) as running:
        yield running


class Life:
    """One client's group, its ledger, and what has been seen to work."""

    def __init__(self, client: Client, broker: EmbeddedBroker) -> None:
        self.client = client
        self.broker = broker
        self.topic = f"life-{uuid.uuid4().hex}"
        self.group = f"group-{uuid.uuid4().hex}"
        self.ledger = PipedLedger()
        self.written = 0
        self.done: list[str] = []
        self._members: list[AnyMember] = []
        with self._admin() as admin:
            admin.create_topic(self.topic, partitions=PARTITIONS)

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.stop()

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self.broker.bootstrap_servers)

    def member(self, name: str) -> AnyMember:
        servers = self.broker.bootstrap_servers
        made = self.client.member(name, servers, self.group, self.topic, self.client.strategy, self.ledger)
        self._members.append(made)
        return made

    def produce(self, count: int) -> None:
        self.client.produce(self.broker.bootstrap_servers, self.topic, count)
        self.written += count

    def until_read(self) -> None:
        """Wait until every record that was written has been read."""
        until(lambda: self.ledger.seen.keys() == self._everything(), f"{self.written} records: {self!r}")

    def _everything(self) -> set[tuple[TopicPartition, int]]:
        with self._admin() as admin:
            partitions = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            ends = admin.list_offsets(partitions)
        found = {(where, offset) for where, end in ends.items() if end for offset in range(end.offset)}
        assert len(found) == self.written
        return found

    def until_owned(self, **counts: int) -> None:
        """Wait until each member owns so many partitions, by its own account and by the coordinator's."""

        def look() -> bool:
            owners = list(self.ledger.owners().values())
            if {name: owners.count(name) for name in set(owners)} != counts:
                return False
            with self._admin() as admin:
                described = admin.describe_group(self.group)
            shares = {member.client_id: len(member.assignment) for member in described.members}
            return described.state == "Stable" and shares == counts

        until(look, f"{counts}: {self!r}")
        assert self.ledger.violations == []

    def until_committed(self) -> None:
        """Wait until the group's offsets are the ends of the partitions."""

        def look() -> bool:
            with self._admin() as admin:
                offsets = admin.group_offsets(self.group)
            return sum(each.offset for each in offsets.values()) == self.written

        until(look, f"{self.written} committed: {self!r}")

    def __repr__(self) -> str:
        errors = [line for member in self._members for line in getattr(member, "errors", ())]
        return f"<{len(self.ledger.seen)} read, {self.ledger.owners()}, {errors[-5:]}>"


@pytest.mark.timeout(960)  # a client may have to be built first
@pytest.mark.parametrize("name", CLIENTS)
def test_the_life_of_a_group(broker: EmbeddedBroker, name: str) -> None:
    client = CLIENTS[name]
    client.needs()
    with Life(client, broker) as life:
        life.produce(400)
        one, two = life.member("one"), life.member("two")
        one.start()
        life.until_owned(one=4)
        life.until_read()
        two.start()
        life.until_owned(one=2, two=2)
        life.produce(100)
        life.until_read()
        two.stop()
        life.until_owned(one=4)
        life.until_committed()
        one.stop()
        life.done += ["produce", "group", "rebalance", "commit"]
        _resume(life, one)
    record(name, client.version(), life.done)
    # Here, where the result is known: the tests of the page may run in another worker, or before.
    assert clients_on_page()[name][1:] == marks(life.done), HINT


def _resume(life: Life, member: AnyMember) -> None:
    """A second run reads what is new, and nothing else; then the broker goes away and comes back."""
    before = life.ledger.seen.copy()
    life.produce(40)
    member.start()
    life.until_read()
    life.until_committed()
    assert {where: life.ledger.seen[where] for where in before} == before, "nothing is read again"
    life.done.append("resume")
    if life.client.waits_for_brokers:
        _restart_the_broker(life)
    member.stop()


def _restart_the_broker(life: Life) -> None:
    life.broker.stop()
    life.broker.start()
    life.produce(40)
    life.until_read()
    life.until_committed()
    life.until_owned(one=4)
    life.done.append("broker restart")


@pytest.mark.timeout(480)  # eight programs, one after the other
def test_tools_of_java(broker: EmbeddedBroker) -> None:
    """The console clients, kafka-topics and kafka-consumer-groups."""
    CLIENTS["Java"].needs()

    def tool(name: str, *arguments: str, text: str = "") -> str:
        where = ("--bootstrap-server", broker.bootstrap_servers)
        return run(java(f"org.apache.kafka.tools.{name}", *where, *arguments, options=JAVA_OPTIONS), text)

    tool("TopicCommand", "--create", "--topic", "t", "--partitions", "2")
    assert "PartitionCount: 2" in tool("TopicCommand", "--describe", "--topic", "t")
    tool("ConsoleProducer", "--topic", "t", text="one\ntwo\nthree\n")
    read = tool(
        "consumer.ConsoleConsumer", "--topic", "t", "--group", "g", "--from-beginning", "--max-messages", "3"
    )
    assert sorted(read.split()) == ["one", "three", "two"]
    groups = "consumer.group.ConsumerGroupCommand"
    described = tool(groups, "--describe", "--group", "g").splitlines()
    lags = [line.split()[5] for line in described if line.startswith("g ")]
    assert lags == ["0", "0"]
    tool(groups, "--reset-offsets", "--to-earliest", "--group", "g", "--topic", "t", "--execute")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert {each.offset for each in admin.group_offsets("g").values()} == {0}
    assert "was successful" in tool(groups, "--delete", "--group", "g")
    assert "g" not in tool(groups, "--list").split()
