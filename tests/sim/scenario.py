"""One run: a cluster, its members, and the questions that a run asks about them."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.state.states import GroupState
from millstream.client import chance, link
from millstream.client.setup.listener import ListenerCheck
from millstream.model import TopicPartition
from tests.sim.cluster import Cluster
from tests.sim.habits import CommitMode, Fidget, Habits
from tests.sim.invariants import Invariants
from tests.sim.member import Member
from tests.sim.network import Connection, Network
from tests.sim.wire import draw_versions
from tests.sim.world import Violation, World

_STRATEGIES: Final = (
    ("range",),
    ("roundrobin",),
    ("sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("range", "cooperative-sticky"),
    ("cooperative-sticky", "range"),
    ("sticky", "roundrobin"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    seed: int
    digest: int
    events: int
    violation: str | None = None


class Scenario:
    """One run."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, tracing=tracing)
        rng = self.world.rng
        self.is_mixed = rng.random() < 0.3
        self.strategy = rng.choice(_STRATEGIES)
        self.has_statics = rng.random() < 0.4
        versions = draw_versions(rng, has_statics=self.has_statics) if self.is_mixed else {}
        self.network = Network(self.world)
        self.invariants = Invariants(self.world)
        settings = GroupSettings(group_initial_rebalance_delay_ms=rng.choice((0, 100, 500)))
        self.cluster = Cluster(
            self.world,
            self.network,
            self.invariants,
            settings,
            rng.randint(1, 3),
            versions,
            has_topic_ids=rng.random() < 0.85,
            has_sessions=rng.random() < 0.7,
        )
        self.network.brokers = self.cluster
        self.invariants.cluster = self.cluster
        self.cluster.is_sequential = rng.random() < 0.5
        self.members: list[Member] = []
        self.restarting = 0
        """Processes that are down and will be back."""
        self._is_calm = False
        self._instances = 0
        self._healthy: dict[tuple[int, str], tuple[object, Any]] = {}
        for number in range(rng.randint(1, 3)):
            self.cluster.topics[f"t{number}"] = rng.randint(1, 6)

    @property
    def description(self) -> str:
        versions = "older" if self.is_mixed else "new"
        return f"{' '.join(self.strategy)}, {len(self.cluster.nodes)} {versions} brokers"

    def result(self, violation: str | None) -> Result:
        return Result(self.seed, self.world.digest, self.world.events, violation)

    # ---- faults that last ----

    def until_healed(self, target: object, **attributes: Any) -> None:
        """Set attributes of ``target`` until ``heal`` restores what they were before the first fault."""
        for name, value in attributes.items():
            self._healthy.setdefault((id(target), name), (target, getattr(target, name)))
            setattr(target, name, value)

    def heal(self) -> None:
        self.world.note("faults end")
        for (_, name), (target, value) in self._healthy.items():
            setattr(target, name, value)
        self._healthy.clear()
        self.calm_down()

    def calm_down(self, is_calm: bool = True) -> None:
        """Users stop fidgeting, those that start later, too; or they begin again."""
        self._is_calm = is_calm
        for member in self.living:
            member.calm_down(is_calm)

    def end(self) -> None:
        """End all threads."""
        for member in self.members:
            member.end()

    # ---- building blocks ----

    @property
    def living(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    def draw_habits(self, *, static: bool | None = None) -> Habits:
        rng = self.world.rng
        if static is None:
            static = self.has_statics and rng.random() < 0.5
        instance_id = None
        if static:
            self._instances += 1
            instance_id = f"i{self._instances}"
        topics = tuple(self.cluster.topics)
        if rng.random() < 0.25:
            topics = (rng.choice(topics),)
        return Habits(
            topics=topics,
            assignors=tuple(rng.sample(self.strategy, k=len(self.strategy))),
            pattern="t" if rng.random() < 0.15 else None,
            instance_id=instance_id,
            commits=rng.choice(tuple(CommitMode)),
            poll_ms=rng.choice((200, 400, 800)),
            work_ms=rng.choice((150, 400, 900)),
            iterates=rng.random() < 0.4,
            fidgets=tuple(fidget for fidget in Fidget if rng.random() < 0.25),
            close_ms=rng.choice((0, 0, 3_000, 30_000)),
            max_poll_records=rng.choice((20, 100, 500)),
        )

    def start(self, habits: Habits) -> Member:
        number = len(self.members) + 1
        member = Member(self.world, self.network, self.cluster, self.invariants, habits, number)
        self.world.note(f"{member.name} starts, {habits.commits.value}, {', '.join(member.topics)}")
        self.members.append(member)
        member.user.is_calm = self._is_calm
        return member

    def run_for(self, duration_ms: int) -> None:
        self.world.run(self.world.now_ms + duration_ms)

    def settle(self, within_ms: int) -> None:
        """Run until every partition that is wanted is held by one member, and nobody waits for anything."""
        deadline_ms = self.world.now_ms + within_ms
        while self._unsettled() and self.world.now_ms < deadline_ms:
            self.run_for(100)
        unsettled = self._unsettled()
        if unsettled:
            self.invariants.fail(f"not settled within {within_ms} ms: {unsettled}")

    def _unsettled(self) -> str:
        """What is not settled yet; empty when all is well."""
        if self.restarting:
            return "a process is still to start"
        return self._unsettled_members() or self._unsettled_group() or self._unsettled_partitions()

    def _unsettled_members(self) -> str:
        for member in self.living:
            if member.is_broken:
                return f"{member.name} has not heard of the failure of its core"
            if member.wants_to_close or member.stall_ms or member.user.must_subscribe:
                return f"{member.name} is still to close or to stall"
            if not member.is_settled:
                return f"{member.name}: {member.membership.waiting().words(self.world.now_ms)}"
        return ""

    def _unsettled_group(self) -> str:
        group = self.cluster.group()
        if group is None:
            return "the group has no coordinator" if self.living else ""
        if set(group.members) != {member.membership.metadata.member_id for member in self.living}:
            return "the coordinator does not have exactly the living members"
        if self.living and group.state is not GroupState.STABLE:
            return f"the group is in {group.state.value}"
        return ""

    def _unsettled_partitions(self) -> str:
        holders: dict[TopicPartition, list[str]] = {}
        for member in self.living:
            for partition in member.held:
                holders.setdefault(partition, []).append(member.name)
        for topic in sorted({topic for member in self.living for topic in member.wanted_topics}):
            for number in range(self.cluster.topics.get(topic, 0)):
                names = holders.pop(TopicPartition(topic, number), [])
                if len(names) != 1:
                    return f"{topic}-{number} is held by {names}"
        return f"{sorted(holders)} are held and not wanted" if holders else ""

    def stay_settled(self) -> None:
        """Nothing moves without a reason; records flow, and all of them end up committed."""
        if not self._is_calm:
            self.calm_down()
            self.settle(8_000)
        given_up, generation = self.invariants.given_up, self.invariants.generation
        self.run_for(2_000)
        self.cluster.logs.end_production()
        deadline_ms = self.world.now_ms + 30_000
        while (behind := self._behind()) and self.world.now_ms < deadline_ms:
            self.run_for(500)
        if self.invariants.given_up != given_up or self.invariants.generation != generation:
            self.invariants.fail("a settled group rebalanced without a reason")
        if behind:
            self.invariants.fail(behind)

    def _behind(self) -> str:
        """Who has not committed all records; empty when everybody has."""
        end = self.cluster.logs.end_offset()
        for member in self.living:
            for partition in sorted(member.held):
                stored = self.invariants.committed.get(partition, 0)
                if stored < end:
                    return f"{partition} ends at {end}, {member.name} committed {stored}"
        return ""


class _Alarm(logging.Handler):
    """What the client's I/O side only logs is a bug as well."""

    def emit(self, record: logging.LogRecord) -> None:
        raise Violation(f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.msg)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keep all threads on one core, as only one runs at a time: switching is three times as fast there."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.SystemRandom().choice(sorted(cores))})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def simulated(seed: int) -> Iterator[None]:
    """Connections and jitter are the simulation's; errors that are only logged raise."""
    loud = [logging.getLogger(f"millstream.{name}") for name in ("client", "net")]
    quiet = logging.getLogger("millstream")
    level, propagate, alarm = quiet.level, quiet.propagate, _Alarm(logging.ERROR)
    quiet.setLevel(logging.CRITICAL)
    quiet.propagate = False
    for log in loud:
        log.setLevel(logging.ERROR)
        log.addHandler(alarm)
    chance._GENERATOR.seed(seed)
    try:
        with (
            _on_one_core(),
            patch.object(link, "PendingConnection", Connection),
            patch.object(ListenerCheck, "begin", lambda *_: None),  # it would ask a real network
        ):
            yield
    finally:
        quiet.setLevel(level)
        quiet.propagate = propagate
        for log in loud:
            log.setLevel(logging.NOTSET)
            log.removeHandler(alarm)
