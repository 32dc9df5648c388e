"""What random walks are judged by: a memory of all that clients were told, and what follows from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.broker.groups.metrics import GroupCounters
from millstream.broker.groups.outcome import Outcome
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.states import GroupState
from millstream.broker.groups.state.table import join_timer, session_timer, sync_timer
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.group_admin import DeleteGroupsResponse
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)
from millstream.wire.messages.groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millstream.wire.schema import Response
from tests.unit.broker.groups.bench import Bench

GROUPS = ("g", "h")
REBALANCE_MS = (5_000, 9_000)
SLOWEST_WRITE_MS = 2_000
LONGEST_WAIT_MS = max(REBALANCE_MS) + SLOWEST_WRITE_MS


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


class Witness:
    """Sees every answer, and looks at the coordinator after every step."""

    def __init__(self, bench: WalkBench) -> None:
        self.bench = bench
        bench.on_reply = self.told
        self.by_ticket: dict[int, Client] = {}
        self.open: dict[int, int] = {}  # tickets that are not answered yet, and when they were sent
        self.generation_told: dict[str, int] = defaultdict(int)
        self.latest_id: dict[tuple[str, str], str] = {}  # of each instance, in each group
        self.owners: dict[tuple[str, int], dict[bytes, str]] = defaultdict(dict)
        self.incarnation: dict[str, int] = defaultdict(int)
        self.stored_generation: dict[str, int] = defaultdict(int)
        self.stored_parts: dict[tuple[str, int], dict[str, bytes]] = {}
        self.stale: set[int] = set()
        self.refused: set[int] = set()
        self.acknowledged: dict[tuple[str, TopicPartition], int] = {}
        self.totals: Counter[str] = Counter()

    def forget_what_was_not_stored(self) -> None:
        """After a restart: what was told of a generation that was never stored binds nobody."""
        self.latest_id.clear()
        for group_id in GROUPS:
            stored = self.bench.coordinator.store.groups.get(group_id)
            self.generation_told[group_id] = stored.generation if stored is not None else 0
            for member in stored.members if stored is not None else ():
                if member.instance_id is not None:
                    self.latest_id[group_id, member.instance_id] = member.member_id

    def count(self) -> None:
        """Keep what the coordinator counted: it starts again from zero with every start."""
        self.totals.update(
            {name: getattr(self.bench.coordinator.counters, name) for name in GroupCounters.__slots__}
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
            assert response.protocol_name in {protocol.name for protocol in request.protocols}

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
