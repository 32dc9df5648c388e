"""A consumer: the two cores, an I/O side that drives them, and a user who polls, works, commits and dawdles."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from millstream.consumer.assignors.base import NO_GENERATION
from millstream.consumer.assignors.protocol import decode_subscription
from millstream.consumer.assignors.registry import resolve_assignors
from millstream.consumer.membership import (
    Assigned,
    CallbackEvent,
    CoordinatorLost,
    Event,
    Failed,
    GroupSettings,
    Joined,
    Lost,
    Membership,
    Phase,
    Revoke,
    TopicsWatched,
    Wait,
)
from millstream.consumer.offsets import CommitDone, CommittedFetched, Offsets, OffsetSettings, OffsetStore
from millstream.consumer.sends import AnyNode, Send
from millstream.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    MillstreamError,
    MillstreamTimeoutError,
    NetworkError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
)
from millstream.wire.schema import Response
from tests.sim.cluster import GROUP, Cluster
from tests.sim.network import Connection, Core, Network

if TYPE_CHECKING:
    from tests.sim.invariants import Invariants
    from tests.sim.world import World

User = Generator[int, None, None]
"""The user's thread: yields for how long it sleeps; ``Member.wake`` may wake it before that."""


class CommitMode(Enum):
    AUTO = "auto"
    SYNC = "sync"
    ASYNC = "async"
    BOTH = "async, and sync when partitions are revoked and at the end"


@dataclass(frozen=True, slots=True)
class Habits:
    """How a member is set up and how its user behaves."""

    topics: tuple[str, ...]
    assignors: tuple[str, ...]
    pattern: str | None = None
    """Instead of topics: all those whose names begin with this."""
    instance_id: str | None = None
    commits: CommitMode = CommitMode.AUTO
    poll_ms: int = 300
    work_ms: int = 100
    session_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 800
    max_poll_interval_ms: int = 5_000


_EXPECTED = (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    MillstreamTimeoutError,
    FencedInstanceIdError,
)


class Member:
    """One process. A restart is another ``Member`` with the same instance id."""

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
        self.client_id = self.name
        self.settings = GroupSettings(
            group_id=GROUP,
            assignors=resolve_assignors(habits.assignors),
            group_instance_id=habits.instance_id,
            session_timeout_ms=habits.session_timeout_ms,
            heartbeat_interval_ms=habits.heartbeat_interval_ms,
            max_poll_interval_ms=habits.max_poll_interval_ms,
            request_timeout_ms=2_500,
            retry_backoff_ms=50,
            retry_backoff_max_ms=400,
        )
        self.membership = Membership(self.settings, self._jitter)
        offset_settings = OffsetSettings(
            group_id=GROUP,
            enable_auto_commit=habits.commits is CommitMode.AUTO,
            auto_commit_interval_ms=700,
            request_timeout_ms=2_500,
            default_api_timeout_ms=4_000,
            retry_backoff_ms=50,
            retry_backoff_max_ms=400,
        )
        self.offsets = OffsetStore(offset_settings, self.membership, self._jitter)
        self.held: set[TopicPartition] = set()
        self.is_alive = True
        self.is_cut_off = False
        self.failure: MillstreamError | None = None
        self.stall_ms = 0
        """How long the user will be busy, on top of the usual, after the next poll."""
        self.wants_to_close = False
        self.topics = habits.topics
        self._connection: Connection | None = None
        self._callbacks: deque[CallbackEvent] = deque()
        self._view: set[TopicPartition] = set()
        self._revoking: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, int] = {}
        self._committable: dict[TopicPartition, OffsetAndMetadata] = {}
        self._fetching: dict[int, tuple[TopicPartition, ...]] = {}
        self._results: dict[int, CommitDone] = {}
        self._awaited: int | None = None
        self._error: MillstreamError | None = None
        self._wake_ms: int | None = None
        self._naps = 0
        self._user: User = self._live()
        self._subscribe()
        world.later(0, self._step, 0)
        world.later(network.latency_ms(), self._refresh_metadata, True)

    def _jitter(self) -> float:
        return self.world.rng.uniform(0.8, 1.2)

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
            self._revoking = frozenset(event.partitions)
            self._expect_callback(event)
        elif isinstance(event, Lost):
            self._let_go(event.partitions)
            self._expect_callback(event)
        elif isinstance(event, Assigned):
            self._expect_callback(event)
        elif isinstance(event, Failed):
            self._error = event.error
            self.wake()
        elif isinstance(event, CoordinatorLost):
            self.drop_connection()
        elif isinstance(event, TopicsWatched):
            self.world.later(self.network.latency_ms(), self._refresh_metadata, False)
        elif isinstance(event, Joined):
            self.world.note(f"{self.name} joined generation {event.generation_id} as {event.member_id}")

    def _expect_callback(self, event: CallbackEvent) -> None:
        self._callbacks.append(event)
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
        if result.commit_id == self._awaited:
            self._results[result.commit_id] = result
            self.wake()

    def _on_committed(self, result: CommittedFetched) -> None:
        partitions = [p for p in self._fetching.pop(result.fetch_id) if p in self.held]
        if result.error is not None:
            self._fetch_positions(partitions)
            return
        for partition in partitions:
            committed = result.offsets[partition]
            self._positions[partition] = 0 if committed is None else committed.offset
        self.wake()

    def _fetch_positions(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = tuple(partitions)
        if wanted:
            fetch_id = self.offsets.fetch_committed(wanted, self.world.now_ms + 3_000)
            self._fetching[fetch_id] = wanted

    def _let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold and hand out these no more."""
        released = [partition for partition in partitions if partition in self.held]
        if released:
            self.world.note(f"{self.name} lets go of {_names(released)}")
        self.invariants.released(self, released)
        self.held.difference_update(released)
        for partition in released:
            self._positions.pop(partition, None)
            self._committable.pop(partition, None)

    # ---- metadata ----

    def _subscribe(self) -> None:
        prefix = self.habits.pattern
        if prefix is None:
            self.membership.set_subscription(self.topics)
            return
        self.topics = tuple(sorted(topic for topic in self.cluster.topics if topic.startswith(prefix)))
        self.membership.set_subscription(self.topics, accepts=lambda topic: topic.startswith(prefix))

    def change_topics(self, topics: tuple[str, ...]) -> None:
        if self.membership.phase not in (Phase.CLOSED, Phase.LEAVING) and not self.wants_to_close:
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
        leaving = self.membership.phase in (Phase.CLOSED, Phase.LEAVING) or self.wants_to_close
        if self.habits.pattern is not None and not leaving:
            self._subscribe()
        topics = self.membership.watched_topics
        self.membership.update_cluster(self.cluster.view(topics), topics, self.world.now_ms)
        self.io()

    # ---- the user's thread ----

    def wake(self) -> None:
        """Wake the user if it sleeps where it can be woken."""
        if self._naps and self.is_alive:
            self.world.later(0, self._step, self._naps)

    def _step(self, nap: int) -> None:
        """Let the user go on, unless it has been woken before or is dead."""
        if nap != self._naps or not self.is_alive:
            return
        self._naps += 1
        delay_ms = next(self._user, None)
        if delay_ms is not None and self.is_alive:
            self.world.later(delay_ms, self._step, self._naps)

    def _sleep(self, delay_ms: int) -> User:
        """Be busy: nothing wakes the user."""
        end_ms = self.world.now_ms + delay_ms
        while self.world.now_ms < end_ms:
            yield end_ms - self.world.now_ms

    def _live(self) -> User:
        while not self.wants_to_close:
            yield from self._poll()
            if self.failure is not None:
                break
        if self.failure is None:
            yield from self._close()
        else:
            self.die()

    def _poll(self) -> User:
        """One poll() and the work that follows it."""
        self.membership.user_polled(self.world.now_ms, waiting=True)
        self.offsets.auto_commit_if_due(self._committable_offsets, self.world.now_ms)
        self.io()
        deadline_ms = self.world.now_ms + self.habits.poll_ms
        batch: dict[TopicPartition, int] = {}
        while not batch and self.failure is None:
            if self._error is not None:
                self._raise_error()
            elif self._callbacks:
                yield from self._run_callback()
            elif self.world.now_ms >= deadline_ms:
                break
            else:
                batch = self._take_batch()
                if not batch:
                    yield deadline_ms - self.world.now_ms
        self.membership.user_polled(self.world.now_ms)
        self.io()
        if self.failure is None:
            yield from self._work(batch)

    def _raise_error(self) -> None:
        assert self._error is not None
        error, self._error = self._error, None
        self.world.note(f"{self.name} is told: {error}")
        self.membership.error_raised(self.world.now_ms)
        if isinstance(error, FencedInstanceIdError):
            self.failure = error
        elif not (isinstance(error, BrokerError) and error.retriable):
            self.invariants.fail(f"{self.name} failed: {error!r}")

    def _take_batch(self) -> dict[TopicPartition, int]:
        """Hand out records: the positions after them."""
        batch: dict[TopicPartition, int] = {}
        for partition in sorted(self.held - self._revoking):
            start = self._positions.get(partition)
            if start is None:
                continue
            end = self.cluster.end_offset(partition)
            if not self.cluster.has_ended:
                end = min(end, start + self.world.rng.randint(5, 60))
            if end > start:
                self.invariants.delivered(self, partition, start, end)
                self._positions[partition] = batch[partition] = end
        return batch

    def _work(self, batch: dict[TopicPartition, int]) -> User:
        stall_ms = self.stall_ms
        if stall_ms:
            self.world.note(f"{self.name} stalls for {stall_ms} ms")
        yield from self._sleep(
            stall_ms + self.world.rng.randint(self.habits.work_ms // 3, self.habits.work_ms)
        )
        self.stall_ms = 0
        for partition, end in batch.items():
            self.invariants.processed(partition, end)
            # Lost, and perhaps assigned again, in the meantime: what was read before does not count.
            if self._positions.get(partition) == end:
                self._committable[partition] = OffsetAndMetadata(end, leader_epoch=0)
        if batch:
            yield from self._commit()

    def _commit(self) -> User:
        mode = self.habits.commits
        if mode is CommitMode.AUTO or not self._committable:
            return
        if mode is CommitMode.SYNC or (mode is CommitMode.BOTH and self.world.chance(0.1)):
            yield from self._commit_and_wait(dict(self._committable))
        else:
            self.offsets.commit_async(dict(self._committable), self.world.now_ms)
            self.io()

    def _commit_and_wait(self, offsets: Offsets) -> User:
        commit_id = self.offsets.commit(offsets, self.world.now_ms + 2_000)
        yield from self._await_commit(commit_id)

    def _await_commit(self, commit_id: int) -> User:
        self._awaited = commit_id
        self.io()
        while commit_id not in self._results:
            yield 10_000
        del self._results[commit_id]
        self._awaited = None

    def _committable_offsets(self) -> Offsets:
        return dict(self._committable)

    # ---- callbacks ----

    def _run_callback(self) -> User:
        event = self._callbacks.popleft()
        self.membership.user_polled(self.world.now_ms)
        if isinstance(event, Revoke):
            yield from self._on_revoked(event)
        elif isinstance(event, Lost):
            yield from self._on_lost(event)
        else:
            yield from self._on_assigned(event)
        self.membership.user_polled(self.world.now_ms, waiting=True)
        self.io()

    def _on_revoked(self, event: Revoke) -> User:
        partitions = set(event.partitions)
        if not partitions <= self._view:
            self.invariants.fail(f"{self.name} must give up {partitions} and has {self._view}")
        deadline_ms = self.world.now_ms + 2_000
        commit_id = self.offsets.auto_commit_now(self._committable_offsets, deadline_ms)
        if commit_id is not None:
            yield from self._await_commit(commit_id)
        elif self.habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
            going = {p: offset for p, offset in self._committable.items() if p in partitions}
            yield from self._commit_and_wait(going)
        yield from self._dawdle()
        self._view -= partitions
        self._let_go(event.partitions)
        self._revoking = frozenset()
        self.membership.callbacks_done(self.world.now_ms)

    def _on_lost(self, event: Lost) -> User:
        self.world.note(f"{self.name} has lost {_names(event.partitions)}: {event.reason}")
        if set(event.partitions) != self._view:
            self.invariants.fail(f"{self.name} loses {event.partitions} and has {self._view}")
        yield from self._dawdle()
        self._view.clear()
        self.membership.callbacks_done(self.world.now_ms)

    def _on_assigned(self, event: Assigned) -> User:
        if self._view.intersection(event.added) or self._view.union(event.added) != set(event.partitions):
            self.invariants.fail(f"{self.name} has {self._view} and is assigned {event}")
        yield from self._dawdle()
        self._view = set(event.partitions)
        self.membership.callbacks_done(self.world.now_ms)
        if self.membership.assignment.issuperset(event.partitions):
            self.world.note(f"{self.name} takes {_names(event.added)} in {event.generation_id}")
            self.invariants.handed_over(self, event.added, event.generation_id)
            self.held.update(event.added)
            self.offsets.partitions_assigned(self.world.now_ms)
            self._fetch_positions(event.added)

    def _dawdle(self) -> User:
        if self.world.chance(0.5):
            yield from self._sleep(self.world.rng.randint(1, 30))

    # ---- the end ----

    def _close(self) -> User:
        """Commit, give everything up, leave."""
        self.world.note(f"{self.name} closes")
        deadline_ms = self.world.now_ms + 3_000
        commit_id = self.offsets.auto_commit_now(self._committable_offsets, deadline_ms)
        if commit_id is None and self.habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
            commit_id = self.offsets.commit(dict(self._committable), deadline_ms)
        if commit_id is not None:
            yield from self._await_commit(commit_id)
        self.membership.close(self.world.now_ms, deadline_ms)
        self.io()
        while not self.membership.is_closed and self.world.now_ms < deadline_ms:
            if self._callbacks:
                yield from self._run_callback()
            else:
                yield min(50, deadline_ms - self.world.now_ms)
        self.die()

    def die(self) -> None:
        """End at once, without a word to anybody."""
        if not self.is_alive:
            return
        self.world.note(f"{self.name} ends")
        self.is_alive = False
        self.invariants.released(self, list(self.held))
        self.held.clear()
        if self._connection is not None:
            self._connection.break_off()

    # ---- questions ----

    @property
    def wanted_topics(self) -> tuple[str, ...]:
        """The topics that a member subscribes to once it has heard of all."""
        prefix = self.habits.pattern
        if prefix is None:
            return self.topics
        return tuple(topic for topic in self.cluster.topics if topic.startswith(prefix))

    @property
    def waits_for_coordinator(self) -> bool:
        """Whether a JoinGroup or SyncGroup is on its way, as far as this member knows."""
        waiting = self.membership.waiting().what
        return waiting in (Wait.MEMBERS, Wait.LEADER)

    @property
    def is_settled(self) -> bool:
        membership = self.membership
        return membership.phase is Phase.STABLE and membership.waiting().what is Wait.NOTHING

    @property
    def generation(self) -> int:
        return self.membership.metadata.generation_id if self.is_alive else NO_GENERATION


def _names(partitions: Iterable[TopicPartition]) -> str:
    return " ".join(map(str, sorted(partitions))) or "nothing"
