"""The broker goes and comes back under a running group: same generation, no callbacks, nothing lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.embedded import EmbeddedBroker
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.system.members import Member, Settings, partitions_of, until_shared
from tests.waiting import SECONDS, until

TOPIC = "t"
SETTINGS: Settings = {
    "session_timeout_ms": 60_000,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_max_ms": 100,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data=tmp_path) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic(TOPIC, partitions=4)
        yield running


class Stream:
    """A producer on a thread of its own, from which everything that it sent arrives in the end."""

    def __init__(self, servers: str) -> None:
        self.sent = 0
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> int:
        """Stop, and return how many records are stored."""
        self._stop.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return self.sent

    def _run(self) -> None:
        with Producer(bootstrap_servers=self._servers, reconnect_backoff_max_ms=100) as producer:
            while not self._stop.wait(0.005):
                producer.send(TOPIC, b"%d" % self.sent, partition=self.sent % 4)
                self.sent += 1
            producer.flush()


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_running_group_survives_a_broker_restart(broker: EmbeddedBroker, how: str, assignor: str) -> None:
    settings: Settings = {
        **SETTINGS,
        "partition_assignment_strategy": assignor,
        "auto_commit_interval_ms": 100,
    }
    servers = broker.bootstrap_servers
    with ExitStack() as stack:
        members = [stack.enter_context(Member(servers, "g", [TOPIC], **settings)) for _ in range(2)]
        until_shared(partitions_of(TOPIC, 0, 1, 2, 3), members, [2, 2])
        with Stream(servers) as stream:
            until(lambda: all(len(member.records) > 20 for member in members), "records flow")
            before = [(member.generation, member.owned, member.told) for member in members]
            for _ in range(2):
                broker.stop() if how == "stop" else broker.kill()
                broker.start()
                seen = [len(member.records) for member in members]
                until(
                    lambda: all(len(m.records) > old + 20 for m, old in zip(members, seen, strict=True)),  # noqa: B023
                    "records flow again",
                )
            total = stream.finish()
        until(lambda: sum(len(member.records) for member in members) >= total, "everything is read")
        for member in members:
            member.call(lambda consumer: consumer.commit())
        assert [(member.generation, member.owned, member.told) for member in members] == before
    seen_once = Counter(record.value for member in members for record in member.records)
    assert len(seen_once) == total, "records were lost"
    assert set(seen_once.values()) == {1}, "without a rebalance nothing is read twice"
    check_committed(servers, total)


def check_committed(servers: str, total: int) -> None:
    everything = [TopicPartition(TOPIC, number) for number in range(4)]
    with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        committed = consumer.committed(everything)
        assert sum(offset.offset for offset in committed.values() if offset is not None) == total


def test_a_consumer_that_starts_before_its_broker(broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    broker.stop()
    with Member(servers, "g", [TOPIC], **SETTINGS) as member:
        with pytest.raises(TimeoutError):
            member.call(lambda consumer: consumer.partitions_for(TOPIC, timeout=0.3))
        broker.start()
        until(lambda: member.owned == partitions_of(TOPIC, 0, 1, 2, 3), "it joins when it can")
        with Producer(bootstrap_servers=servers) as producer:
            producer.send(TOPIC, b"hello").result(SECONDS)
        until(lambda: [record.value for record in member.records] == [b"hello"], "it reads")


def test_a_commit_waits_for_the_broker_to_come_back(broker: EmbeddedBroker) -> None:
    """A synchronous commit is repeated until it is stored."""
    servers = broker.bootstrap_servers
    with Member(servers, "g", [TOPIC], enable_auto_commit=False, **SETTINGS) as member:
        until(lambda: member.owned == partitions_of(TOPIC, 0, 1, 2, 3), "it joins")
        broker.kill()
        commit = member.begin(lambda consumer: consumer.commit({TopicPartition(TOPIC, 0): 5}))
        broker.start()
        commit.result(SECONDS)
        stored = member.call(lambda consumer: consumer.committed([TopicPartition(TOPIC, 0)]))
        assert (offset := stored[TopicPartition(TOPIC, 0)]) is not None and offset.offset == 5
