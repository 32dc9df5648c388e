"""Members, zombies, administrators and a bad disk do as they please, for thousands of simulated steps.

Each walk is decided by its seed alone: a failure names the seed, and ``walk(seed)`` plays it again. What must
hold all along is in ``witness``, what must hold when everybody has gone in ``Walk.finish``. The bench adds:
each ticket is answered once, in a form that its version can carry, and the store is always what the log says.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from millstream.broker.groups.metrics import GroupCounters
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.store import Store
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.wire.messages.groups import LeaveGroupRequest, MemberIdentity
from tests.unit.broker.groups.bench import subscription
from tests.unit.broker.groups.witness import (
    GROUPS,
    LONGEST_WAIT_MS,
    REBALANCE_MS,
    SLOWEST_WRITE_MS,
    Client,
    WalkBench,
    Witness,
)

INSTANCES = ("i0", "i1", "i1", None, None, None)
"""One of each group's clients has a twin with the same instance id."""
TOPICS = ("t", "u")
SESSIONS_MS = (4_000, 8_000)
DAY_MS = 86_400_000

A = ("a", subscription("t"))
B = ("b", subscription("t", "u"))
CHOICES = ((A, B), (A, B), (A, B), (B, A), (B, A), (A, ("b", subscription("u"))), (A,), (B,))


class Walk(Witness):
    """One walk: clients that act, a disk that is slow or fails, and a broker that is killed now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(
            WalkBench(
                group_initial_rebalance_delay_ms=500,
                group_max_size=6,
                new_member_join_timeout_ms=8_000,
                offsets_retention_minutes=24 * 60,
                offsets_retention_check_interval_ms=DAY_MS // 24,
            )
        )
        self.random = random.Random(seed)
        self.clients = [Client(group_id, instance) for group_id in GROUPS for instance in INSTANCES]
        self.commit_number = 0

    def step(self) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (300, self.act_as_told),
            (8, lambda: self.join(self.client())),
            (8, lambda: self.sync(self.client())),
            (20, lambda: self.heartbeat(self.client())),
            (40, lambda: self.commit(self.client())),
            (4, self.leave),
            (10, self.fetch),
            (90, self.pass_time),
            (100, self.flush),
            (12, self.fail),
            (3, self.restart),
            (8, self.delete_group),
            (8, self.delete_offsets),
            (2, self.delete_topic),
        ]
        weights = [weight for weight, _ in actions]
        self.random.choices([action for _, action in actions], weights)[0]()
        self.check()

    def client(self) -> Client:
        return self.random.choice(self.clients)

    def act_as_told(self) -> None:
        """One client does what a good client would; most of what it does must come from such steps."""
        client = self.client()
        if client.wants == "join":
            self.join(client)
        elif client.wants == "sync":
            self.sync(client)
        elif client.wants == "work":
            self.random.choice((self.heartbeat, self.commit))(client)

    def send(self, client: Client, send: Callable[[], object]) -> None:
        ticket = len(self.bench.requests) + 1
        self.by_ticket[ticket] = client
        self.open[ticket] = self.bench.now_ms
        send()

    def join(self, client: Client) -> None:
        if self.random.random() < 0.03 or not client.keywords:
            client.keywords = {
                "protocols": self.random.choice(CHOICES),
                "rebalance_ms": self.random.choice(REBALANCE_MS),
                "session_ms": self.random.choice(SESSIONS_MS),
                "version": self.random.choice((3, 5, 7, 8, 9, 9))
                if client.instance_id is None
                else self.random.choice((5, 8, 9)),
            }
        if self.random.random() < 0.04:
            client.member_id = ""  # the process starts anew
        client.wants = "wait"
        self.send(
            client,
            lambda: self.bench.join(
                client.member_id,
                instance_id=client.instance_id,
                group_id=client.group_id,
                **client.keywords,  # type: ignore[arg-type]
            ),
        )

    def sync(self, client: Client) -> None:
        members = self.random.sample(client.members, len(client.members)) if client.leads else []
        assignments = {member: b"part %d" % index for index, member in enumerate(members)}
        client.wants = "wait"
        self.send(
            client,
            lambda: self.bench.sync(
                client.member_id,
                client.generation,
                assignments,
                instance_id=client.instance_id,
                group_id=client.group_id,
            ),
        )
        if client.leads and self.random.random() < 0.2:
            self.sync(client)  # it repeats itself, with another assignment

    def heartbeat(self, client: Client) -> None:
        self.send(
            client,
            lambda: self.bench.heartbeat(
                client.member_id, client.generation, client.instance_id, client.group_id
            ),
        )

    def commit(self, client: Client) -> None:
        simple = self.random.random() < 0.3
        generation = -1 if simple else client.generation
        self.commit_number += 1
        number = self.commit_number
        if self.must_be_refused(client, generation):
            self.stale.add(number)
        partitions = [TopicPartition(self.random.choice(TOPICS), self.random.randrange(2))]
        self.send(
            client,
            lambda: self.bench.commit(
                dict.fromkeys(partitions, number),
                "" if simple else client.member_id,
                generation,
                instance_id=None if simple else client.instance_id,
                group_id=client.group_id,
            ),
        )

    def leave(self) -> None:
        client = self.client()
        member_id = client.member_id if self.random.random() < 0.7 or client.instance_id is None else ""
        identity = MemberIdentity(member_id=member_id, group_instance_id=client.instance_id)
        request = LeaveGroupRequest(group_id=client.group_id, members=[identity])
        self.send(client, lambda: self.bench.send(request, 5))

    def fetch(self) -> None:
        client = self.client()
        stable = self.random.random() < 0.7
        self.send(client, lambda: self.bench.fetch(require_stable=stable, group_id=client.group_id))

    def pass_time(self) -> None:
        self.pass_ms(self.random.choice((1, 10, 10, 50, 50, 100, 100, 400, 1_500)))

    def pass_ms(self, by_ms: int) -> None:
        end_ms = self.bench.now_ms + by_ms
        while self.bench.now_ms < end_ms:
            oldest_ms = self.bench.asked_ms[0] + SLOWEST_WRITE_MS if self.bench.asked_ms else end_ms
            self.bench.advance(max(0, min(oldest_ms, end_ms) - self.bench.now_ms))
            if self.bench.asked_ms and self.bench.asked_ms[0] + SLOWEST_WRITE_MS <= self.bench.now_ms:
                self.write(1)

    def flush(self) -> None:
        self.write(self.random.choice((1, 1, 2, 10)))

    def write(self, count: int) -> None:
        for _ in range(min(count, len(self.bench.writes))):
            self.bench.asked_ms.pop(0)
            self.bench.flush(1)
            self.check_store()

    def fail(self) -> None:
        for _ in range(min(self.random.choice((1, 2)), len(self.bench.writes))):
            self.bench.asked_ms.pop(0)
            self.bench.fail(self.random.choice((ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT)))

    def restart(self) -> None:
        self.open.clear()
        self.count()
        for client in self.clients:
            client.wants = "join" if client.wants == "wait" else client.wants
        self.bench.asked_ms.clear()
        self.bench.restart()
        self.forget_what_was_not_stored()

    def delete_group(self) -> None:
        client = self.client()
        self.send(client, lambda: self.bench.delete(client.group_id))

    def delete_offsets(self) -> None:
        client = self.client()
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2)]
        topic = OffsetDeleteRequestTopic(name=self.random.choice(TOPICS), partitions=partitions)
        request = OffsetDeleteRequest(group_id=client.group_id, topics=[topic])
        self.send(client, lambda: self.bench.send(request, 0))

    def delete_topic(self) -> None:
        topic = self.random.choice(TOPICS)
        self.bench.take(self.bench.coordinator.topic_deleted(topic, self.bench.moment))

    def finish(self) -> None:
        """Everybody has gone: all requests are answered, and after the retention nothing is left at all."""
        self.pass_ms(LONGEST_WAIT_MS + max(SESSIONS_MS) + 1_000)
        assert not self.open
        self.pass_ms(max(SESSIONS_MS) + max(REBALANCE_MS) + SLOWEST_WRITE_MS)
        states = {group.state for group in self.bench.coordinator._table.groups.values()}
        assert states <= {GroupState.EMPTY}
        self.write(len(self.bench.writes))
        self.bench.slow_disk = False
        self.bench.on_reply = lambda ticket: None
        self.bench.advance(DAY_MS + DAY_MS // 12)
        assert self.bench.listed() == []
        assert self.bench.replayed() == Store()
        assert len(self.bench.coordinator._table.timers) == 1
        self.count()


def walk(seed: int, steps: int = 1_000) -> Walk:
    one = Walk(seed)
    for _ in range(steps):
        one.step()
    one.finish()
    return one


@pytest.mark.parametrize("seed", range(40))
def test_a_walk(seed: int) -> None:
    walk(seed)


def test_the_walks_see_enough() -> None:
    """The walks would prove nothing if their members never got anywhere."""
    walks = [walk(seed) for seed in range(20)]
    for name in GroupCounters.__slots__:
        total = sum(one.totals[name] for one in walks)
        assert total >= 5, f"only {total} {name}"
    assert sum(len(one.owners) for one in walks) > 50


def test_the_same_seed_gives_the_same_walk() -> None:
    first, second = walk(7), walk(7)
    assert first.bench.log == second.bench.log
    assert first.bench.replies == second.bench.replies
