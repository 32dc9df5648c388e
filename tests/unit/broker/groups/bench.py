"""A coordinator on the bench: a clock to turn, a log that can be slow or broken, and members to play.

Every response is encoded in the version of its request, as a driver would, so a field that this version
cannot carry shows at once. Every ticket must be answered once; the log is kept as bytes, and replaying it
must always give the store that the coordinator has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.outcome import Caller, Moment, Outcome
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.records import decode_record, encode_record
from millstream.broker.groups.state.store import Store
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.consumer_protocol import ConsumerProtocolSubscription
from millstream.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from millstream.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from millstream.wire.schema import Request, Response

AnyResponse = TypeVar("AnyResponse", bound=Response)

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000
EPOCH_MS = 1_700_000_000_000
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def subscription(*topics: str, version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + message.encode(version)


RANGE = (("range", subscription("t")),)
BOTH = (("range", subscription("t")), ("roundrobin", subscription("t")))


@dataclass
class Parked:
    """A request on its way; ``response`` says what became of it."""

    bench: Bench
    ticket: int

    @property
    def answered(self) -> bool:
        return self.ticket in self.bench.replies

    def response(self, kind: type[AnyResponse]) -> AnyResponse:
        found = self.bench.replies[self.ticket]
        assert isinstance(found, kind)
        return found

    @property
    def joined(self) -> JoinGroupResponse:
        return self.response(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        return self.response(SyncGroupResponse)

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.bench.replies[self.ticket].error_code)  # type: ignore[attr-defined]


class Bench:
    """Drives one coordinator. The disk is instant, unless it is slow: then ``flush`` and ``fail`` decide."""

    def __init__(
        self, *, slow_disk: bool = False, topics: Iterable[str] | None = None, **settings: int
    ) -> None:
        defaults = {"group_initial_rebalance_delay_ms": INITIAL_DELAY_MS}
        given = {**defaults, **settings}
        limits = {name: given.pop(name) for name in settings if name not in GroupSettings.names()}
        self.settings = type("LimitedSettings", (GroupSettings,), limits)(**given)
        self.topics = None if topics is None else set(topics)
        self.slow_disk = slow_disk
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self._shadow = Store()
        self.writes: deque[Outcome] = deque()
        self.requests: dict[int, tuple[Request, int]] = {}
        self.replies: dict[int, Response] = {}
        self._ids = 0
        self.coordinator = self._start()

    # ---- the driver's part ----

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, EPOCH_MS + self.now_ms)

    def _start(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings, self._new_id, self._exists, self)
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            coordinator.apply(record)
        self.coordinator = coordinator
        self.take(coordinator.loaded(self.moment))
        return coordinator

    def _new_id(self) -> str:
        self._ids += 1
        return f"id{self._ids}"

    def _exists(self, partition: TopicPartition) -> bool:
        return self.topics is None or partition.topic in self.topics

    def id_of(self, name: str) -> bytes | None:
        """The id of a topic: its name, filled up."""
        return name.encode().ljust(16, b"\0") if self._exists(TopicPartition(name, 0)) else None

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.rstrip(b"\0").decode()
        return name if self._exists(TopicPartition(name, 0)) else None

    def restart(self) -> None:
        """As after kill -9: what is in flight or parked is gone."""
        self.writes.clear()
        self._shadow = self.replayed()
        before = self.coordinator.store
        self._start()
        assert self.coordinator.store == before == self._shadow

    def take(self, outcome: Outcome) -> None:
        for reply in outcome.replies:
            assert reply.ticket not in self.replies, f"{self.requests[reply.ticket]} is answered twice"
            request, version = self.requests[reply.ticket]
            assert reply.response.api == request.api
            reply.response.encode(version)
            self.replies[reply.ticket] = reply.response
        assert (outcome.token is not None) == bool(outcome.records)
        if outcome.records:
            self.writes.append(outcome)
            if not self.slow_disk:
                self.flush()

    def flush(self, count: int | None = None) -> None:
        """The oldest writes, or all, reach the disk."""
        count = len(self.writes) if count is None else count
        while count and self.writes:
            outcome = self.writes.popleft()
            self._append([encode_record(record) for record in outcome.records])
            assert outcome.token is not None
            self.take(self.coordinator.appended(outcome.token, self.moment))
            assert self._shadow == self.coordinator.store, "the log says something else"
            count -= 1

    def _append(self, written: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in written:
            self.log.append((key, value))
            record = decode_record(key, value)
            assert record is not None
            self._shadow.apply(record)

    def fail(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR, count: int = 1) -> None:
        """The oldest writes are refused by the log."""
        for _ in range(count):
            outcome = self.writes.popleft()
            assert outcome.token is not None
            self.take(self.coordinator.append_failed(outcome.token, error, self.moment))

    def replayed(self) -> Store:
        """What a broker that starts now would know."""
        store = Store()
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            store.apply(record)
        return store

    def advance(self, by_ms: int) -> None:
        """Let time pass, with a tick at every deadline on the way, at its exact time."""
        end_ms = self.now_ms + by_ms
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.coordinator.tick(self.moment))
        self.now_ms = end_ms

    def wait_for(self, *parked: Parked) -> None:
        """Let time pass until all are answered, and no further."""
        while not all(request.answered for request in parked):
            deadline_ms = self.coordinator.next_deadline_ms()
            assert deadline_ms is not None, "nothing will ever happen"
            self.advance(max(0, deadline_ms - self.now_ms))

    def send(self, request: Request, version: int, client_id: str = "client") -> Parked:
        ticket = len(self.requests) + 1
        self.requests[ticket] = (request, version)
        caller = Caller(client_id, "/127.0.0.1", version)
        self.take(self.coordinator.handle(request, ticket, caller, self.moment))
        return Parked(self, ticket)

    def ask(self, request: Request, version: int, kind: type[AnyResponse]) -> AnyResponse:
        """Send a request that is answered at once."""
        return self.send(request, version).response(kind)

    # ---- the clients' part ----

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
        group_id: str = GROUP,
        client_id: str = "client",
    ) -> Parked:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.send(request, version, client_id)

    def join_new(self, **keywords: Any) -> tuple[str, Parked]:
        """A dynamic member's two steps: get an id, join with it."""
        first = self.join(**keywords).joined
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **keywords)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        version: int | None = None,
        group_id: str = GROUP,
    ) -> Parked:
        """From version 5 on both protocols must be named: without them it is version 4."""
        if version is None:
            version = 4 if protocol_type is None or protocol is None else 5
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=owner, assignment=assignment)
                for owner, assignment in (assignments or {}).items()
            ],
        )
        return self.send(request, version)

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return ErrorCode(self.ask(request, 4, HeartbeatResponse).error_code)

    def leave(self, *members: tuple[str, str | None] | str, group_id: str = GROUP) -> list[ErrorCode]:
        """Leave with member ids, or (member id, instance id): the error of each."""
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        identities = [MemberIdentity(member_id=one, group_instance_id=two) for one, two in pairs]
        request = LeaveGroupRequest(group_id=group_id, members=identities)
        response = self.ask(request, 5, LeaveGroupResponse)
        assert response.error_code == ErrorCode.NONE
        return [ErrorCode(member.error_code) for member in response.members]

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        member_id: str = "",
        generation: int = -1,
        *,
        instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 9,
        group_id: str = GROUP,
    ) -> Parked:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, offset in offsets.items():
            entry = OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(partition.topic, []).append(entry)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
        )
        return self.send(request, version)

    def fetch(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        group_id: str = GROUP,
    ) -> Parked:
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=[index]) for name, index in partitions
            ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
        return self.send(OffsetFetchRequest(groups=[group], require_stable=require_stable), 9)

    def committed(self, group_id: str = GROUP) -> dict[TopicPartition, int]:
        """All offsets of a group, as a client reads them."""
        return offsets_in(self.fetch(group_id=group_id))

    def describe(self, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
        response = self.ask(DescribeGroupsRequest(groups=[group_id]), version, DescribeGroupsResponse)
        return response.groups[0]

    def state(self, group_id: str = GROUP) -> str:
        return self.describe(group_id).group_state

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return self.ask(request, 5, ListGroupsResponse).groups

    def delete(self, *group_ids: str) -> Parked:
        return self.send(DeleteGroupsRequest(groups_names=list(group_ids)), 2)

    # ---- whole scenes ----

    def settle(self, *members: str, generation: int, group_id: str = GROUP) -> None:
        """Sync all members, the leader (the first) with an assignment for each."""
        leader = members[0]
        assignments = {member: f"for {member}".encode() for member in members}
        syncs = [self.sync(leader, generation, assignments, group_id=group_id)]
        syncs += [self.sync(member, generation, group_id=group_id) for member in members[1:]]
        for member, sync in zip(members, syncs, strict=True):
            assert sync.error is ErrorCode.NONE
            assert sync.synced.assignment == f"for {member}".encode()

    def stable_group(self, size: int = 2, **keywords: Any) -> list[str]:
        """A group in its first generation; the first member leads."""
        members, joins = zip(*(self.join_new(**keywords) for _ in range(size)), strict=True)
        self.wait_for(*joins)
        assert all(join.joined.generation_id == 1 for join in joins)
        self.settle(*members, generation=1, group_id=keywords.get("group_id", GROUP))
        assert self.state(keywords.get("group_id", GROUP)) == "Stable"
        return list(members)

    def static_group(self, size: int = 2, **keywords: Any) -> list[str]:
        """The same of static members, with the instance ids i0, i1, ..."""
        joins = [self.join(instance_id=f"i{index}", **keywords) for index in range(size)]
        self.wait_for(*joins)
        members = [join.joined.member_id for join in joins]
        self.settle(*members, generation=1)
        return members


def offsets_in(fetch: Parked) -> dict[TopicPartition, int]:
    (group,) = fetch.response(OffsetFetchResponse).groups
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in group.topics
        for partition in topic.partitions
    }


def commit_errors(commit: Parked) -> list[ErrorCode]:
    response = commit.response(OffsetCommitResponse)
    return [ErrorCode(entry.error_code) for topic in response.topics for entry in topic.partitions]


def deleted(request: Parked) -> dict[str, ErrorCode]:
    response = request.response(DeleteGroupsResponse)
    return {result.group_id: ErrorCode(result.error_code) for result in response.results}
