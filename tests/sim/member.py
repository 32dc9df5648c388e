"""A member: a process with a real ``Consumer``, whose user's thread and I/O thread the world runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.client.client import Client
from millstream.config import ConsumerConfig
from millstream.consumer.assignors.protocol import decode_subscription
from millstream.consumer.consumer import Consumer, session_of
from millstream.consumer.decoding.records import Records
from millstream.consumer.fetching.drain import Drained
from millstream.consumer.membership.core import Membership
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Event, Joined, Lost, Wait
from millstream.consumer.offsets.values import CommitDone, CommittedFetched
from millstream.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    MillstreamError,
    MillstreamTimeoutError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
)
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.groups import JoinGroupRequest
from millstream.wire.schema import Request
from tests.sim.actors import Actor
from tests.sim.cluster import Cluster
from tests.sim.habits import Habits
from tests.sim.invariants import Invariants
from tests.sim.loop import SimulatedThread
from tests.sim.network import Connection, Network
from tests.sim.user import User
from tests.sim.world import World

COMMIT_ERRORS = (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    MillstreamTimeoutError,
    FencedInstanceIdError,
)
"""How commits may end in a world like this."""


class SimulatedConsumer(Consumer):
    """The consumer, with another I/O thread under its client."""

    def __init__(self, member: Member) -> None:
        self._process = member
        super().__init__(member.habits.settings(len(member.cluster.nodes)))

    def _connect(self, config: ConsumerConfig) -> Client:
        return Client(config, io=SimulatedThread(self._process.world, self._process))


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
        self.topics = habits.topics
        self.is_alive = True
        self.is_cut_off = False
        self.is_broken = False
        """Whether one of its cores was made to fail."""
        self.wants_to_close = False
        self.stall_ms = 0
        """How long the user will be busy, on top of the usual, after the next poll."""
        self.failure: MillstreamError | None = None
        self.connections: list[Connection] = []
        self.held: set[TopicPartition] = set()
        self.consumer = SimulatedConsumer(self)
        self.driver = session_of(self.consumer).driver
        self._watch()
        self.user = User(self)
        self._actor = Actor(world, self._live)

    @property
    def membership(self) -> Membership:
        assert self.driver._member is not None
        return self.driver._member

    def _live(self) -> None:
        self.user.live()
        self.die()

    # ---- what is watched: nothing is changed ----

    def _watch(self) -> None:
        """See what the driver hands over: events, ends of commits, records."""
        cores, finish = self.driver._cores, self.driver.finish_take
        on_member_event, on_offset_event = cores._on_member_event, cores._on_offset_event

        def member_event(event: Event) -> None:
            self._on_event(event)
            on_member_event(event)

        def offset_event(event: CommitDone | CommittedFetched, now_ms: int) -> None:
            if isinstance(event, CommitDone):
                self._on_commit(event)
            on_offset_event(event, now_ms)

        def finish_take(drained: Drained) -> Records:
            records = finish(drained)
            for part in records.columns:
                start, end = int(part.offsets[0]), int(part.offsets[-1]) + 1
                self.invariants.delivered(self, part.topic_partition, start, end)
            return records

        watched: Any = cores
        watched._on_member_event, watched._on_offset_event = member_event, offset_event
        watched = self.driver
        watched.finish_take = finish_take

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Lost):
            self.let_go(event.dropped)
        elif isinstance(event, Joined):
            self.world.note(f"{self.name} joined generation {event.generation_id} as {event.member_id}")

    def _on_commit(self, event: CommitDone) -> None:
        if event.error is None:
            for partition, offset in event.offsets.items():
                self.invariants.acknowledged(self, partition, offset.offset)
        elif not isinstance(event.error, COMMIT_ERRORS):
            self.invariants.fail(f"{self.name}: a commit ended with {event.error!r}")

    def sends(self, request: Request) -> None:
        """A request is on its way. Who joins must not hold more than it says that it owns."""
        if not isinstance(request, FetchRequest):
            self.world.note(f"{self.name} sends {type(request).__name__}")
        if isinstance(request, JoinGroupRequest):
            claimed = set(decode_subscription(request.protocols[0].metadata).owned_partitions)
            if not self.held <= claimed:
                self.invariants.fail(f"{self.name} joins with {claimed} and holds {self.held}")

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold these no more."""
        released = sorted(self.held.intersection(partitions))
        if released:
            self.world.note(f"{self.name} lets go of {names(released)}")
        self.invariants.released(self, released)
        self.held.difference_update(released)

    # ---- what others do to it ----

    def wakeup(self) -> None:
        self.user.woken_ms = self.world.now_ms if self.user.woken_ms is None else self.user.woken_ms
        self.consumer.wakeup()

    def fail_core(self) -> None:
        """From now on, one of its cores fails whenever it is used."""

        def fail(now_ms: int) -> None:
            self.let_go(self.held.copy())  # nothing is handed out from now on
            raise RuntimeError("a core was made to fail")

        self.is_broken = True
        core: Any = self.membership
        core.poll = fail
        self.nudge()

    def nudge(self) -> None:
        """Have the user look up from a loop that waits for records."""
        if self.habits.iterates:
            self.wakeup()

    def close(self) -> None:
        """Have the user close its consumer."""
        self.wants_to_close = True
        self.nudge()

    def stall(self, delay_ms: int) -> None:
        self.stall_ms = delay_ms
        self.nudge()

    def change_topics(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        self.user.must_subscribe = True
        self.nudge()

    def calm_down(self, is_calm: bool) -> None:
        """Have the user do nothing but read and commit, or fidget again."""
        self.user.is_calm = is_calm
        self.nudge()

    def die(self) -> None:
        """End at once, without a word to anybody."""
        if not self.is_alive:
            return
        self.world.note(f"{self.name} ends")
        self.is_alive = False
        self.invariants.released(self, sorted(self.held))
        self.held.clear()
        for connection in list(self.connections):
            connection.break_off()
        self.end()

    def end(self) -> None:
        """End the thread: also that of a run that is over."""
        self.is_alive = False
        self._actor.kill()

    # ---- questions ----

    @property
    def wanted_topics(self) -> tuple[str, ...]:
        """The topics that a member subscribes to once it has heard of all."""
        prefix = self.habits.pattern
        if prefix is None:
            return self.topics
        return tuple(topic for topic in self.cluster.topics if topic.startswith(prefix))

    @property
    def is_settled(self) -> bool:
        membership = self.membership
        return membership.phase is MemberPhase.STABLE and membership.waiting().what is Wait.NOTHING


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions for the trace."""
    return " ".join(map(str, sorted(partitions))) or "nothing"
