"""Members, zombies, administrators and a bad disk do as they please, for thousands of simulated steps.

Each walk is decided by its seed alone: a failure names the seed, and ``walk(seed)`` plays it again. What must
hold all along is in ``Walk.check`` and in the ``told_*`` methods, which see every answer; what must hold when
everybody has gone is in ``Walk.finish``. The bench adds: each ticket is answered once, in a form that its
version can carry, and the store is always what the log says.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from millstream.broker.groups.group import ClassicGroup
from millstream.broker.groups.metrics import Counters
from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.states import GroupState
from millstream.broker.groups.store import Store
from millstream.broker.groups.table import join_timer, session_timer, sync_timer
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_admin import DeleteGroupsResponse
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)
from millstream.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.wire.schema import Response
from tests.unit.broker.groups.bench import Bench, subscription

GROUPS = ("g", "h")
INSTANCES = ("i0", "i1", "i1", None, None, None)
"""One of each group's clients has a twin with the same instance id."""
TOPICS = ("t", "u")
REBALANCE_MS = (5_000, 9_000)
SESSIONS_MS = (4_000, 8_000)
INITIAL_DELAY_MS = 500
SLOWEST_WRITE_MS = 2_000
LONGEST_WAIT_MS = max(REBALANCE_MS) + SLOWEST_WRITE_MS
DAY_MS = 86_400_000

A = ("a", subscription("t"))
B = ("b", subscription("t", "u"))
CHOICES = ((A, B), (A, B), (A, B), (B, A), (B, A), (A, ("b", subscription("u"))), (A,), (B,))


@dataclass
class Client:
    """What one process believes about itself, rightly or not."""

    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    members: list[str] = field(default_factory=list)
    keywords: dict[str, object] = field(default_factory=dict)
    wants: str = "join"


class WalkBench(Bench):
    """A bench that lets the walk see every answer, and knows when each write was asked for."""

    on_reply: Callable[[int], None]

    def __init__(self, **settings: Any) -> None:
        self.on_reply = lambda ticket: None
        self.asked_ms: list[int] = []
        super().__init__(slow_disk=True, **settings)

    def take(self, outcome: Outcome) -> None:
        super().take(outcome)
        if outcome.records:
            self.asked_ms.append(self.now_ms)
        for reply in outcome.replies:
            self.on_reply(reply.ticket)


class Walk:
    """One walk: clients that act, and a memory of all that they were told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = WalkBench(
            group_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
            group_max_size=6,
            new_member_join_timeout_ms=8_000,
            offsets_retention_ms=DAY_MS,
            offsets_retention_check_interval_ms=DAY_MS // 24,
        )
        self.bench.on_reply = self.told
        self.clients = [Client(group_id, instance) for group_id in GROUPS for instance in INSTANCES]
        self.by_ticket: dict[int, Client] = {}
        self.open: dict[int, int] = {}  # tickets that are not answered yet, and when they were sent
        self.generation_told: dict[str, int] = defaultdict(int)
        self.stored_generation: dict[str, int] = defaultdict(int)
        self.owners: dict[tuple[str, int], dict[bytes, str]] = defaultdict(dict)
        self.incarnation: dict[str, int] = defaultdict(int)
        self.latest_id: dict[tuple[str, str], str] = {}
        self.stored_parts: dict[tuple[str, int], dict[str, bytes]] = {}
        self.totals: Counter[str] = Counter()
        self.commit_number = 0
        self.stale: set[int] = set()
        self.refused: set[int] = set()
        self.acknowledged: dict[tuple[str, TopicPartition], int] = {}

    # ---- what clients and the world do ----

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

    def must_be_refused(self, client: Client, generation: int) -> bool:
        """Whether a commit is stale, as far as answers given to clients can tell, or comes at a bad time."""
        group = self.bench.coordinator._table.groups.get(client.group_id)
        if generation < 0:
            return group is not None and bool(group.members)
        if group is not None and group.state is GroupState.COMPLETING_REBALANCE:
            return True
        if client.instance_id is not None:
            latest = self.latest_id.get((client.group_id, client.instance_id), client.member_id)
            if latest != client.member_id:
                return True
        return generation < self.generation_told[client.group_id]

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
        self.latest_id.clear()  # what was told of a generation that was never stored binds nobody
        for group_id in GROUPS:
            stored = self.bench.coordinator.store.groups.get(group_id)
            self.generation_told[group_id] = stored.generation if stored is not None else 0
            for member in stored.members if stored is not None else ():
                if member.instance_id is not None:
                    self.latest_id[group_id, member.instance_id] = member.member_id

    def count(self) -> None:
        """Keep what the coordinator counted: it starts again from zero with every start."""
        self.totals.update(
            {name: getattr(self.bench.coordinator.counters, name) for name in Counters.__slots__}
        )

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

    # ---- what clients are told ----

    def told(self, ticket: int) -> None:
        request, _ = self.bench.requests[ticket]
        response = self.bench.replies[ticket]
        waited_ms = self.bench.now_ms - self.open.pop(ticket)
        assert waited_ms <= LONGEST_WAIT_MS, f"{request} waited {waited_ms} ms"
        self.react(self.by_ticket[ticket], response)
        if isinstance(response, JoinGroupResponse) and isinstance(request, JoinGroupRequest):
            self.told_join(self.by_ticket[ticket], request, response)
        elif isinstance(response, SyncGroupResponse) and isinstance(request, SyncGroupRequest):
            self.told_sync(self.by_ticket[ticket], request, response)
        elif isinstance(response, OffsetCommitResponse) and isinstance(request, OffsetCommitRequest):
            self.told_commit(request, response)
        elif isinstance(request, OffsetFetchRequest) and request.require_stable:
            self.told_stable_fetch(ticket, request, waited_ms)
        elif isinstance(response, DeleteGroupsResponse):
            for result in response.results:
                gone = not self.bench.coordinator.store.knows(result.group_id)
                assert gone or result.error_code != ErrorCode.NONE, "deleted, but still there"
        elif isinstance(response, OffsetDeleteResponse) and isinstance(request, OffsetDeleteRequest):
            self.told_offset_delete(request, response)

    def react(self, client: Client, response: Response) -> None:
        error = getattr(response, "error_code", ErrorCode.NONE)
        if error == ErrorCode.FENCED_INSTANCE_ID:
            client.wants = "rest"  # its twin has won, until somebody starts this one again
        elif error == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id, client.wants = "", "join"
        elif error != ErrorCode.NONE:
            client.wants = "join"
        elif isinstance(response, JoinGroupResponse | SyncGroupResponse):
            client.wants = "sync" if isinstance(response, JoinGroupResponse) else "work"

    def told_join(self, client: Client, request: JoinGroupRequest, response: JoinGroupResponse) -> None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            assert response.generation_id >= self.generation_told[client.group_id], "a generation went back"
            self.generation_told[client.group_id] = response.generation_id
            client.member_id, client.generation = response.member_id, response.generation_id
            if client.instance_id is not None:
                self.latest_id[client.group_id, client.instance_id] = response.member_id
            client.members = [member.member_id for member in response.members]
            client.leads = response.leader == response.member_id
            assert not client.members or client.leads, "only the leader sees the members"
            chosen = dict(self.offered(request))[response.protocol_name or ""]
            assert all(chosen is not None for _ in client.members)

    def offered(self, request: JoinGroupRequest) -> list[tuple[str, bytes]]:
        return [(protocol.name, protocol.metadata) for protocol in request.protocols]

    def told_sync(self, client: Client, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        if response.error_code != ErrorCode.NONE or not response.assignment:
            return
        key = (f"{request.group_id}/{self.incarnation[request.group_id]}", request.generation_id)
        me = request.group_instance_id or request.member_id
        owner = self.owners[key].setdefault(response.assignment, me)
        assert owner == me, f"{response.assignment!r} has two owners in generation {request.generation_id}"

    def told_stable_fetch(self, ticket: int, request: OffsetFetchRequest, waited_ms: int) -> None:
        assert waited_ms <= SLOWEST_WRITE_MS
        (asked,) = request.groups
        for earlier in self.open:
            other, _ = self.bench.requests[earlier]
            commits = isinstance(other, OffsetCommitRequest) and other.group_id == asked.group_id
            assert earlier > ticket or not commits, "a commit came first and is still open"

    def told_offset_delete(self, request: OffsetDeleteRequest, response: OffsetDeleteResponse) -> None:
        offsets = self.bench.coordinator.store.offsets_of(request.group_id)
        for topic in response.topics:
            for entry in topic.partitions:
                partition = TopicPartition(topic.name, entry.partition_index)
                assert entry.error_code or partition not in offsets, "deleted, but still there"

    def told_commit(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        for topic, answer in zip(request.topics, response.topics, strict=True):
            for entry, outcome in zip(topic.partitions, answer.partitions, strict=True):
                partition, number = TopicPartition(topic.name, entry.partition_index), entry.committed_offset
                if outcome.error_code == ErrorCode.NONE:
                    assert number not in self.stale, "a stale commit was acknowledged"
                    stored = self.bench.coordinator.store.offsets_of(request.group_id).get(partition)
                    assert stored is not None and stored.offset == number, "acknowledged, but not stored"
                    self.acknowledged[request.group_id, partition] = number
                else:
                    self.refused.add(number)

    # ---- what must always hold ----

    def check_store(self) -> None:
        store = self.bench.coordinator.store
        for group_id in GROUPS:
            stored = store.groups.get(group_id)
            if stored is None:
                if self.stored_generation[group_id]:
                    self.incarnation[group_id] += 1
                    self.generation_told[group_id] = 0
                self.stored_generation[group_id] = 0
            else:
                assert stored.generation >= self.stored_generation[group_id]
                parts = {m.instance_id or m.member_id: m.assignment for m in stored.members}
                key = (f"{group_id}/{self.incarnation[group_id]}", stored.generation)
                assert self.stored_parts.setdefault(key, parts) == parts, "a generation was stored twice"
                self.stored_generation[group_id] = stored.generation
            for partition, committed in store.offsets_of(group_id).items():
                assert committed.offset not in self.stale, "a stale commit was stored"
                assert committed.offset not in self.refused, "a refused commit was stored"
                latest = self.acknowledged.get((group_id, partition), 0)
                assert committed.offset >= latest, "an earlier commit overtook a later one"

    def check(self) -> None:
        table = self.bench.coordinator._table
        for group in table.groups.values():
            self.check_group(group)
        alive = {group.group_id for group in table.groups.values()}
        assert all(key.group_id in alive for key in table.timers._deadlines if key.group_id)
        for ticket, sent_ms in self.open.items():
            assert self.bench.now_ms - sent_ms <= LONGEST_WAIT_MS, f"{self.bench.requests[ticket]} waits"

    def check_group(self, group: ClassicGroup) -> None:
        table = self.bench.coordinator._table
        members = group.members.values()
        assert group.awaiting_joins == sum(member.join is not None for member in members)
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.static_ids == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert group.unsynced <= set(group.members)
        assert not group.pending & set(group.members)
        assert not group.members or group.state not in {GroupState.EMPTY, GroupState.DEAD}
        assert group.members or group.state in {GroupState.EMPTY, GroupState.PREPARING_REBALANCE}
        if group.members:
            assert group.select_protocol()
        syncing = group.state is GroupState.COMPLETING_REBALANCE
        assert syncing or all(member.sync is None for member in members)
        assert (join_timer(group) in table.timers) == (group.state is GroupState.PREPARING_REBALANCE)
        assert (sync_timer(group) in table.timers) == bool(group.unsynced)
        for member in members:
            assert session_timer(group, member.member_id) in table.timers or member.keeps_session_by_waiting
        assert all(session_timer(group, member_id) in table.timers for member_id in group.pending)
        assert not group.is_idle or table.store.knows(group.group_id), "forgotten groups are dropped"

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
    for name in Counters.__slots__:
        total = sum(one.totals[name] for one in walks)
        assert total >= 5, f"only {total} {name}"
    assert sum(len(one.owners) for one in walks) > 50


def test_the_same_seed_gives_the_same_walk() -> None:
    first, second = walk(7), walk(7)
    assert first.bench.log == second.bench.log
    assert first.bench.replies == second.bench.replies
