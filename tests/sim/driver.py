"""The I/O side of a consumer: it drives the two cores, as the real driver does."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from millstream.client.targets import AnyNode
from millstream.consumer.assignors.protocol import decode_subscription
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import (
    Assigned,
    CallbackEvent,
    CoordinatorLost,
    Event,
    Failed,
    Joined,
    Lost,
    Revoke,
    TopicsWatched,
    Wait,
)
from millstream.consumer.offsets.core import OffsetStore
from millstream.consumer.offsets.values import CommitDone, CommittedFetched
from millstream.consumer.sends import Send
from millstream.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from millstream.wire.schema import Response
from tests.sim.cluster import Cluster
from tests.sim.habits import Habits
from tests.sim.network import Connection, Core, Network

if TYPE_CHECKING:
    from tests.sim.invariants import Invariants
    from tests.sim.world import World

_EXPECTED: Final = (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    MillstreamTimeoutError,
    FencedInstanceIdError,
)
"""How commits may end in a world like this."""


class Driver:
    """Everything that goes on whether the user's thread is there or not."""

    def __init__(
        self,
        world: World,
        network: Network,
        cluster: Cluster,
        invariants: Invariants,
        habits: Habits,
        number: int,
    ) -> None:
        self.world, self.network, self.cluster, self.invariants = world, network, cluster, invariants
        self.habits = habits
        self.name = f"m{number}" + (f"/{habits.instance_id}" if habits.instance_id else "")
        self.identity = habits.instance_id or self.name
        """Who the member is across restarts."""
        config = habits.config()
        self.membership = Membership(config, world.rng.random)
        self.offsets = OffsetStore(config, self.membership, world.rng.random)
        self.held: set[TopicPartition] = set()
        self.topics = habits.topics
        self.is_alive = True
        self.is_cut_off = False
        self.wants_to_close = False
        # For the user's thread: what it has to run, to raise, and to wait for.
        self.callbacks: deque[CallbackEvent] = deque()
        self.error: MillstreamError | None = None
        self.awaited: int | None = None
        self.results: dict[int, CommitDone] = {}
        self.revoking: frozenset[TopicPartition] = frozenset()
        self.positions: dict[TopicPartition, int] = {}
        self.committable: dict[TopicPartition, OffsetAndMetadata] = {}
        self._connection: Connection | None = None
        self._fetching: dict[int, tuple[TopicPartition, ...]] = {}
        self._wake_ms: int | None = None
        self._subscribe()
        world.later(network.latency_ms(), self._refresh_metadata, True)

    def wake(self) -> None:
        """Wake the user if it sleeps where it can be woken."""
        raise NotImplementedError

    @property
    def waits_for_coordinator(self) -> bool:
        """Whether a JoinGroup or SyncGroup is on its way, as far as this member knows."""
        waiting = self.membership.waiting().what
        return waiting in (Wait.MEMBERS, Wait.LEADER)

    # ---- the I/O side ----

    def io(self) -> None:
        """Do what the cores ask for, until they ask for nothing."""
        if not self.is_alive:
            return
        now_ms = self.world.now_ms
        busy = True
        while busy:
            for send in self.offsets.poll(now_ms):
                self._transmit(self.offsets, send)
            for send in self.membership.poll(now_ms):
                self._transmit(self.membership, send)
            events = self.membership.take_events()
            for event in events:
                self._on_event(event)
            done = self.offsets.take_events(now_ms)
            for result in done:
                self._on_result(result)
            busy = bool(events or done)
        self._schedule_wake(now_ms)

    def _schedule_wake(self, now_ms: int) -> None:
        first, second = self.membership.next_wake_ms(now_ms), self.offsets.next_wake_ms(now_ms)
        wake_ms = min((moment for moment in (first, second) if moment is not None), default=None)
        if wake_ms != self._wake_ms:
            self._wake_ms = wake_ms
            if wake_ms is not None:
                self.world.later(wake_ms - now_ms, self._woken, wake_ms)

    def _woken(self, wake_ms: int) -> None:
        if wake_ms == self._wake_ms:
            self._wake_ms = None
            self.io()

    def _transmit(self, core: Core, send: Send) -> None:
        self.world.note(f"{self.name} sends {send.request_type.__name__}")
        if isinstance(send.target, AnyNode):
            self._ask_anybody(core, send)
            return
        node = self.membership.coordinator
        assert node is not None
        if self._connection is None or self._connection.node_id != node.node_id:
            self.drop_connection()
            if not self.cluster.is_up(node.node_id):
                self.world.later(self.network.latency_ms(), self.failed, core, send.token, NetworkError())
                return
            self._connection = Connection(self.network, self.cluster, self, node.node_id)
        if send.request_type is JoinGroupRequest:
            self._check_claims(send)
        self._connection.send(core, send)

    def _check_claims(self, send: Send) -> None:
        """A member that joins must not hold more than it says that it owns."""
        request = send.build(JoinGroupRequest.api.max_version)
        assert isinstance(request, JoinGroupRequest)
        claimed = set(decode_subscription(request.protocols[0].metadata).owned_partitions)
        if not self.held <= claimed:
            self.invariants.fail(f"{self.name} joins with {claimed} and holds {self.held}")

    def _ask_anybody(self, core: Core, send: Send) -> None:
        """FindCoordinator goes to any broker over another connection."""
        assert send.request_type is FindCoordinatorRequest
        delay_ms = self.network.latency_ms() + self.network.latency_ms()
        if self.is_cut_off or self.world.chance(self.network.loss_probability):
            self.world.later(send.timeout_ms, self.failed, core, send.token, MillstreamTimeoutError())
        else:
            self.world.later(delay_ms, self._found, core, send.token)

    def _found(self, core: Core, token: int) -> None:
        self.received(core, token, self.cluster.find_coordinator(self.network.loss_probability))

    def received(self, core: Core, token: int, response: Response) -> None:
        if not self.is_alive:
            return
        core.receive(token, response, self.world.now_ms)
        self.io()

    def failed(self, core: Core, token: int, error: Exception) -> None:
        if self.is_alive:
            core.failed(token, error, self.world.now_ms)
            self.io()

    def drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close(NetworkError())

    def connection_closed(self, connection: Connection) -> None:
        if connection is self._connection:
            self._connection = None

    @property
    def connection(self) -> Connection | None:
        return self._connection

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Revoke):
            self.revoking = frozenset(event.partitions)
            self._expect_callback(event)
        elif isinstance(event, Lost):
            self.let_go(event.dropped)
            self._expect_callback(event)
        elif isinstance(event, Assigned):
            self._expect_callback(event)
        elif isinstance(event, Failed):
            self.error = event.error
            self.wake()
        elif isinstance(event, CoordinatorLost):
            self.drop_connection()
        elif isinstance(event, TopicsWatched):
            self.world.later(self.network.latency_ms(), self._refresh_metadata, False)
        elif isinstance(event, Joined):
            self.world.note(f"{self.name} joined generation {event.generation_id} as {event.member_id}")

    def _expect_callback(self, event: CallbackEvent) -> None:
        self.callbacks.append(event)
        self.wake()

    def _on_result(self, result: CommitDone | CommittedFetched) -> None:
        if isinstance(result, CommittedFetched):
            self._on_committed(result)
            return
        if result.error is None:
            for partition, offset in result.offsets.items():
                self.invariants.acknowledged(self, partition, offset.offset)
        elif not isinstance(result.error, _EXPECTED):
            self.invariants.fail(f"{self.name}: a commit ended with {result.error!r}")
        if result.commit_id == self.awaited:
            self.results[result.commit_id] = result
            self.wake()

    def _on_committed(self, result: CommittedFetched) -> None:
        partitions = [p for p in self._fetching.pop(result.fetch_id) if p in self.held]
        if result.error is not None:
            self.fetch_positions(partitions)
            return
        for partition in partitions:
            committed = result.offsets[partition]
            self.positions[partition] = 0 if committed is None else committed.offset
        self.wake()

    def fetch_positions(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = tuple(partitions)
        if wanted:
            fetch_id = self.offsets.fetch_committed(wanted, self.world.now_ms + 3_000)
            self._fetching[fetch_id] = wanted

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold and hand out these no more."""
        released = [partition for partition in partitions if partition in self.held]
        if released:
            self.world.note(f"{self.name} lets go of {names(released)}")
        self.invariants.released(self, released)
        self.held.difference_update(released)
        for partition in released:
            self.positions.pop(partition, None)
            self.committable.pop(partition, None)

    # ---- metadata ----

    def _subscribe(self) -> None:
        prefix = self.habits.pattern
        if prefix is None:
            self.membership.set_subscription(self.topics)
            return
        self.topics = tuple(sorted(topic for topic in self.cluster.topics if topic.startswith(prefix)))
        self.membership.set_subscription(self.topics, accepts=lambda topic: topic.startswith(prefix))

    def change_topics(self, topics: tuple[str, ...]) -> None:
        if self.membership.phase not in (MemberPhase.CLOSED, MemberPhase.LEAVING) and not self.wants_to_close:
            self.world.note(f"{self.name} subscribes to {', '.join(topics)}")
            self.topics = topics
            self.membership.set_subscription(topics)
            self.io()

    def _refresh_metadata(self, again: bool) -> None:
        if not self.is_alive:
            return
        if again:
            self.world.later(1_500 + self.world.rng.randint(0, 500), self._refresh_metadata, True)
        if self.is_cut_off:
            return
        leaving = self.membership.phase in (MemberPhase.CLOSED, MemberPhase.LEAVING) or self.wants_to_close
        if self.habits.pattern is not None and not leaving:
            self._subscribe()
        topics = self.membership.watched_topics
        self.membership.update_cluster(self.cluster.view(topics), topics, self.world.now_ms)
        self.io()


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for the trace."""
    return " ".join(map(str, sorted(partitions))) or "nothing"
