"""Brokers with one group coordinator among them, its disk, and topics that grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.outcome import Caller, Moment, Outcome, error_response
from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.group import ClassicGroup
from millstream.broker.groups.state.records import GroupRecord, decode_record, encode_record
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.group_offsets import OffsetCommitRequest
from millstream.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.schema import Request
from tests.sim.fetches import Fetches
from tests.sim.invariants import Holder, Invariants
from tests.sim.logs import Logs
from tests.sim.network import FIRST_PORT, Network, Slot
from tests.sim.world import World

GROUP: Final = "sim"
_EPOCH_MS: Final = 1_700_000_000_000


class Cluster:
    """Some brokers. One of them coordinates the group, or is about to."""

    def __init__(
        self,
        world: World,
        network: Network,
        invariants: Invariants,
        settings: GroupSettings,
        node_count: int,
        versions: Mapping[int, int],
        *,
        has_topic_ids: bool,
        has_sessions: bool,
    ) -> None:
        self.world = world
        self.network = network
        self.invariants = invariants
        self.settings = settings
        self.nodes = [1] * node_count
        """Each node's incarnation; it counts up when the node crashes and once more when it is back."""
        self.coordinator_node = 0
        self.coordinator: GroupCoordinator | None = None
        self.is_sequential = True
        """Whether a connection's requests are handled one after the other, as Apache Kafka does."""
        self.logs = Logs(world, self.nodes, versions, has_topic_ids)
        self._fetches = Fetches(self.logs, self.nodes, has_sessions=has_sessions)
        self.topics = self.logs.topics
        self.log: list[GroupRecord] = []
        self.slowest_write_ms = 4
        self.write_failure_probability = 0.0
        self._writes: deque[tuple[int, tuple[GroupRecord, ...]]] = deque()
        self._written_ms = 0
        self._tick_ms: int | None = None
        self._ids = 0
        self._load(self.coordinator_node)

    # ---- requests ----

    def _find_coordinator(self) -> FindCoordinatorResponse:
        """What any broker answers, in both the old form and the new one."""
        error = ErrorCode.NONE if self.is_up(self.coordinator_node) else ErrorCode.COORDINATOR_NOT_AVAILABLE
        node_id = self.coordinator_node
        if self.world.chance(self.network.loss_probability):
            node_id = self.world.rng.randrange(len(self.nodes))  # metadata that is not up to date
        port = node_id + FIRST_PORT
        found = Coordinator(key=GROUP, node_id=node_id, host="sim", port=port, error_code=error)
        return FindCoordinatorResponse(
            coordinators=[found], error_code=error, node_id=node_id, host="sim", port=port
        )

    def handle(self, node_id: int, request: Request, slot: Slot, caller: Caller, host: Holder) -> None:
        if isinstance(request, FetchRequest):
            self._fetches.handle(node_id, request, slot)
            return
        if self.logs.answer(node_id, request, slot):
            return
        if isinstance(request, FindCoordinatorRequest):
            if not self.world.chance(self.network.loss_probability):
                slot.reply(self._find_coordinator())
            return
        coordinator = self.coordinator
        if node_id != self.coordinator_node or coordinator is None:
            slot.reply(error_response(request, caller.version, ErrorCode.NOT_COORDINATOR))
            return
        outcome = coordinator.handle(request, slot, caller, self._moment())
        if outcome.records and isinstance(request, OffsetCommitRequest):
            self.invariants.commit_accepted(request, host)
        self._carry_out(outcome)

    def _carry_out(self, outcome: Outcome) -> None:
        if outcome.records:
            assert outcome.token is not None
            self._writes.append((outcome.token, outcome.records))
            latency_ms = self.world.rng.randint(0, self.slowest_write_ms)
            self._written_ms = max(self.world.now_ms + latency_ms, self._written_ms)
            delay_ms = self._written_ms - self.world.now_ms
            self.world.later(delay_ms, self._written, self.coordinator, outcome.token)
        for reply in outcome.replies:
            self.invariants.replied(reply.ticket.request_type, reply.response)
            reply.ticket.reply(reply.response)
        self._schedule_tick()

    def _written(self, coordinator: GroupCoordinator, token: int) -> None:
        if coordinator is not self.coordinator:
            return
        expected, records = self._writes.popleft()
        assert expected == token
        if self.world.chance(self.write_failure_probability):
            self.world.note("the disk refuses a write")
            self._carry_out(coordinator.append_failed(token, ErrorCode.KAFKA_STORAGE_ERROR, self._moment()))
            return
        self._append(records)
        self._carry_out(coordinator.appended(token, self._moment()))

    def _append(self, records: tuple[GroupRecord, ...]) -> None:
        for record in records:
            self.log.append(record)
            self.invariants.durable(record)

    def _schedule_tick(self) -> None:
        if self.coordinator is None:
            return
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is None or (self._tick_ms is not None and self._tick_ms <= deadline_ms):
            return
        self._tick_ms = deadline_ms
        self.world.later(max(0, deadline_ms - self.world.now_ms), self._tick, self.coordinator, deadline_ms)

    def _tick(self, coordinator: GroupCoordinator, deadline_ms: int) -> None:
        if coordinator is not self.coordinator or deadline_ms != self._tick_ms:
            return
        self._tick_ms = None
        self._carry_out(coordinator.tick(self._moment()))

    def _moment(self) -> Moment:
        return Moment(self.world.now_ms, _EPOCH_MS + self.world.now_ms)

    def group(self) -> ClassicGroup | None:
        """The group as its coordinator has it in memory."""
        # Not public: only a test looks over the coordinator's shoulder.
        return None if self.coordinator is None else self.coordinator._table.groups.get(GROUP)

    # ---- faults ----

    def is_up(self, node_id: int) -> bool:
        return self.nodes[node_id] % 2 == 1

    def crash_coordinator(self, down_ms: int) -> int:
        """The coordinator's broker dies. Returns its id: its connections must be broken off."""
        node_id = self.coordinator_node
        self.world.note(f"broker {node_id} crashes in {self._state()}")
        self.nodes[node_id] += 1
        self._drop_coordinator()
        self.world.later(down_ms, self._revive, node_id)
        return node_id

    def _revive(self, node_id: int) -> None:
        self.nodes[node_id] += 1
        self._load(node_id)

    def move_coordinator(self) -> None:
        """The group goes to another broker, which reads its log; the old one answers what is parked."""
        if self.coordinator is None:
            return
        self.world.note(f"coordinator moves in {self._state()}")
        outcome = self.coordinator.stop(self._moment())
        self._drop_coordinator()
        for reply in outcome.replies:
            reply.ticket.reply(reply.response)
        candidates = [node_id for node_id in range(len(self.nodes)) if self.is_up(node_id)]
        self.coordinator_node = self.world.rng.choice(candidates)
        self.world.later(self.world.rng.randint(0, 300), self._load, self.coordinator_node)

    def _drop_coordinator(self) -> None:
        """Of the writes under way, any beginning may have reached the disk."""
        records = [record for _, written in self._writes for record in written]
        self._append(tuple(records[: self.world.rng.randint(0, len(records))]))
        self._writes.clear()
        self._written_ms = 0
        self._tick_ms = None
        self.coordinator = None
        self.invariants.coordinator_gone()

    def _load(self, node_id: int) -> None:
        if self.coordinator is not None or node_id != self.coordinator_node or not self.is_up(node_id):
            return
        self.coordinator = GroupCoordinator(self.settings, self._new_id, self._has_partition)
        for record in self.log:
            self.coordinator.apply(self._reread(record))
        self.world.note(f"broker {node_id} coordinates")
        delay_ms = self.world.rng.randint(0, 200) if self.log else 0
        self.world.later(delay_ms, self._loaded, self.coordinator)

    def _loaded(self, coordinator: GroupCoordinator) -> None:
        if coordinator is self.coordinator:
            self._carry_out(coordinator.loaded(self._moment()))

    def _reread(self, record: GroupRecord) -> GroupRecord:
        again = decode_record(*encode_record(record))
        assert again == record
        return again

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:04}"

    def _has_partition(self, partition: TopicPartition) -> bool:
        return 0 <= partition.partition < self.topics.get(partition.topic, 0)

    def _state(self) -> str:
        group = self.group()
        return "no group" if group is None else group.state.value
