"""What happens in a run: drawn from its seed, in one of a few families.

- *chaos*: everything at once, then silence; the group must settle within a bounded time and stay settled.
- *static restart*: static members die and are back within their session; nothing else moves.
- *duplicate*: a second process takes an instance id; exactly one of the two is fenced.
- *orderly*: joins, clean leaves, new partitions, without faults: all is owned again within moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from millstream.broker.groups.settings import GroupSettings
from millstream.broker.groups.states import GroupState
from millstream.errors import FencedInstanceIdError
from millstream.model import TopicPartition
from tests.sim.cluster import Cluster
from tests.sim.invariants import Invariants
from tests.sim.member import CommitMode, Habits, Member
from tests.sim.network import Network
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
SETTLE_MS: Final = 45_000
"""After the last fault: a session, a join that nobody answers, and another one, with room to spare."""
_WIRE_EVERY: Final = 8
"""Every so many seeds, all messages go through bytes."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    seed: int
    digest: int
    events: int
    violation: str | None = None


class Scenario:
    """One run."""

    def __init__(self, seed: int, *, tracing: bool = False, on_wire: bool | None = None) -> None:
        self.seed = seed
        self.world = World(seed, tracing=tracing)
        rng = self.world.rng
        self.family = self._draw_family()
        self.is_on_wire = seed % _WIRE_EVERY == 0 if on_wire is None else on_wire
        self.strategy = rng.choice(_STRATEGIES)
        self.has_statics = self.family in (_static_restart, _duplicate) or rng.random() < 0.4
        versions = draw_versions(rng, static=self.has_statics) if self.is_on_wire else {}
        self.network = Network(self.world, on_wire=self.is_on_wire, versions=versions)
        self.invariants = Invariants(self.world)
        settings = GroupSettings(group_initial_rebalance_delay_ms=rng.choice((0, 100, 500)))
        self.cluster = Cluster(self.world, self.invariants, settings, rng.randint(1, 3), self.is_on_wire)
        self.invariants.cluster = self.cluster
        self.cluster.is_sequential = rng.random() < 0.5
        self.members: list[Member] = []
        self.restarting = 0
        """Processes that are down and will be back."""
        self._instances = 0
        for number in range(rng.randint(1, 3)):
            self.cluster.topics[f"t{number}"] = rng.randint(1, 6)

    def _draw_family(self) -> Callable[[Scenario], None]:
        draw = self.world.rng.random()
        if draw < 0.7:
            return _chaos
        return _static_restart if draw < 0.8 else _duplicate if draw < 0.88 else _orderly

    def run(self) -> Result:
        self.world.note(f"{self.family.__name__} {self.strategy} wire={self.is_on_wire}")
        try:
            self.family(self)
        except Violation as violation:
            return self._result(str(violation))
        return self._result(None)

    def _result(self, violation: str | None) -> Result:
        return Result(self.seed, self.world.digest, self.world.events, violation)

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
            assignors=self.strategy,
            pattern="t" if rng.random() < 0.15 else None,
            instance_id=instance_id,
            commits=rng.choice(tuple(CommitMode)),
            poll_ms=rng.choice((200, 400, 800)),
            work_ms=rng.choice((150, 400, 900)),
        )

    def start(self, habits: Habits) -> Member:
        number = len(self.members) + 1
        member = Member(self.world, self.network, self.cluster, self.invariants, habits, number)
        self.world.note(f"{member.name} starts, {habits.commits.value}, {', '.join(member.topics)}")
        self.members.append(member)
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
        living = self.living
        if self.restarting:
            return "a process is still to start"
        for member in living:
            if member.wants_to_close or member.stall_ms:
                return f"{member.name} is still to close or to stall"
            if not member.is_settled:
                return f"{member.name}: {member.membership.waiting().words(self.world.now_ms)}"
        group = self.cluster.group()
        if group is None:
            return "the group has no coordinator" if living else ""
        if set(group.members) != {member.membership.metadata.member_id for member in living}:
            return "the coordinator does not have exactly the living members"
        if living and group.state is not GroupState.STABLE:
            return f"the group is in {group.state.value}"
        holders: dict[TopicPartition, list[str]] = {}
        for member in living:
            for partition in member.held:
                holders.setdefault(partition, []).append(member.name)
        wanted = {topic for member in living for topic in member.wanted_topics}
        for topic in sorted(wanted):
            for number in range(self.cluster.topics.get(topic, 0)):
                names = holders.pop(TopicPartition(topic, number), [])
                if len(names) != 1:
                    return f"{topic}-{number} is held by {names}"
        return f"{sorted(holders)} are held and not wanted" if holders else ""

    def stay_settled(self) -> None:
        """Nothing moves without a reason; records flow, and all of them end up committed."""
        given_up, generation = self.invariants.given_up, self.invariants.generation
        self.run_for(3_000)
        self.cluster.end_production()
        self.run_for(4_000)
        if self.invariants.given_up != given_up or self.invariants.generation != generation:
            self.invariants.fail("a settled group rebalanced without a reason")
        for member in self.living:
            for partition in sorted(member.held):
                end = self.cluster.end_offset(partition)
                if self.invariants.committed.get(partition, 0) < end:
                    stored = self.invariants.committed.get(partition)
                    self.invariants.fail(f"{partition} ends at {end}, {member.name} committed {stored}")


# ---- the families ----


def _chaos(scenario: Scenario) -> None:
    rng = scenario.world.rng
    scenario.network.ghost_probability = rng.choice((0.0, 0.3))
    scenario.network.loss_probability = 0.02
    scenario.network.slowest_ms = rng.choice((4, 8, 60))
    for _ in range(rng.randint(1, 4)):
        scenario.start(scenario.draw_habits())
    end_ms = rng.randint(8_000, 20_000)
    pace_ms = rng.choice((300, 700, 1_500))
    faults = rng.sample(FAULTS, k=rng.randint(3, len(FAULTS)))
    while scenario.world.now_ms < end_ms:
        scenario.run_for(rng.randint(1, 2 * pace_ms))
        rng.choice(faults)(scenario)
    _heal(scenario)
    scenario.run_for(4_000)  # time to notice the last faults: a session, and a refresh of metadata
    scenario.settle(SETTLE_MS)
    scenario.stay_settled()


def _heal(scenario: Scenario) -> None:
    scenario.world.note("faults end")
    scenario.network.slowest_ms = 8
    scenario.network.ghost_probability = scenario.network.loss_probability = 0.0
    scenario.cluster.slowest_write_ms = 4
    scenario.cluster.write_failure_probability = 0.0
    for member in scenario.members:
        member.is_cut_off = False
    if all(member.wants_to_close for member in scenario.living):
        scenario.start(scenario.draw_habits())


def _static_restart(scenario: Scenario) -> None:
    """A static member that is back within its session costs nobody anything (KIP-345)."""
    rng = scenario.world.rng
    for _ in range(rng.randint(2, 4)):
        scenario.start(scenario.draw_habits(static=True))
    scenario.settle(10_000)
    for _ in range(rng.randint(1, 4)):
        scenario.run_for(rng.randint(500, 3_000))
        generation, given_up = scenario.invariants.generation, scenario.invariants.given_up
        victim = rng.choice(scenario.living)
        held = len(victim.held)
        if rng.random() < 0.5:
            victim.die()
        else:
            victim.wants_to_close = True
            scenario.run_for(1_200)
        scenario.run_for(rng.randint(50, 1_000))
        scenario.start(replace(victim.habits, commits=CommitMode.AUTO))
        if victim.is_alive:
            scenario.invariants.fail(f"{victim.name} takes too long to close")
        scenario.settle(5_000)
        if scenario.invariants.generation != generation:
            scenario.invariants.fail(f"{victim.name} is back in its session, and the group rebalanced")
        if scenario.invariants.given_up != given_up + held:
            scenario.invariants.fail(f"{victim.name} is back in its session, and others lost partitions")
    scenario.stay_settled()


def _duplicate(scenario: Scenario) -> None:
    """Two processes with one instance id: the newer one stays, the older one is told (KIP-345)."""
    rng = scenario.world.rng
    for _ in range(rng.randint(1, 3)):
        scenario.start(scenario.draw_habits(static=True))
    scenario.settle(10_000)
    for _ in range(rng.randint(1, 3)):
        older = rng.choice(scenario.living)
        newer = scenario.start(older.habits)
        scenario.settle(15_000)
        fenced = [m for m in (older, newer) if isinstance(m.failure, FencedInstanceIdError)]
        if fenced != [older] or not newer.is_alive:
            scenario.invariants.fail(f"{[m.name for m in fenced]} fenced, not {older.name}")
    scenario.stay_settled()


def _orderly(scenario: Scenario) -> None:
    rng = scenario.world.rng
    for _ in range(rng.randint(1, 3)):
        scenario.start(scenario.draw_habits(static=False))
    scenario.settle(8_000)
    for _ in range(rng.randint(2, 5)):
        rng.choice((_join, _close_cleanly, _add_partitions, _change_topics))(scenario)
        if not scenario.living:
            scenario.start(scenario.draw_habits(static=False))
        scenario.run_for(300)
        scenario.settle(8_000)
    scenario.stay_settled()


def _close_cleanly(scenario: Scenario) -> None:
    """Who closes is out of the group at once, not after its session."""
    if not scenario.living:
        return
    victim = scenario.world.rng.choice(scenario.living)
    member_id = victim.membership.metadata.member_id
    victim.wants_to_close = True
    while victim.is_alive:
        scenario.run_for(50)
    scenario.run_for(100)
    group = scenario.cluster.group()
    if group is not None and member_id in group.members and victim.habits.instance_id is None:
        scenario.invariants.fail(f"{victim.name} has closed, and {member_id} is still a member")


# ---- what can go wrong ----


def _join(scenario: Scenario) -> None:
    if len(scenario.living) < 7:
        scenario.start(scenario.draw_habits())


def _close(scenario: Scenario) -> None:
    if scenario.living:
        scenario.world.rng.choice(scenario.living).wants_to_close = True


def _crash(scenario: Scenario) -> None:
    if scenario.living:
        scenario.world.rng.choice(scenario.living).die()


def _restart(scenario: Scenario) -> None:
    """A process dies; another one of the same kind, and with its instance id if it has one, replaces it."""
    if not scenario.living:
        return
    rng = scenario.world.rng
    victim = rng.choice(scenario.living)
    victim.die()
    habits = victim.habits
    if rng.random() < 0.3:
        habits = replace(habits, topics=(rng.choice(tuple(scenario.cluster.topics)),))
    scenario.restarting += 1
    scenario.world.later(rng.randint(0, 5_000), _come_back, scenario, habits)


def _come_back(scenario: Scenario, habits: Habits) -> None:
    scenario.restarting -= 1
    scenario.start(habits)


def _stall(scenario: Scenario) -> None:
    if scenario.living:
        rng = scenario.world.rng
        rng.choice(scenario.living).stall_ms = rng.choice((500, 2_000, 6_000, 9_000))


def _change_topics(scenario: Scenario) -> None:
    rng = scenario.world.rng
    members = [member for member in scenario.living if member.habits.pattern is None]
    if members:
        known = tuple(scenario.cluster.topics)
        rng.choice(members).change_topics(tuple(rng.sample(known, k=rng.randint(1, len(known)))))


def _add_partitions(scenario: Scenario) -> None:
    topics = scenario.cluster.topics
    topic = scenario.world.rng.choice(tuple(topics))
    if topics[topic] < 8:
        topics[topic] += scenario.world.rng.randint(1, 2)
        scenario.world.note(f"{topic} has {topics[topic]} partitions")


def _create_topic(scenario: Scenario) -> None:
    if len(scenario.cluster.topics) < 5:
        scenario.cluster.topics[f"t{len(scenario.cluster.topics)}"] = scenario.world.rng.randint(1, 4)


def _break_connection(scenario: Scenario) -> None:
    if scenario.living:
        connection = scenario.world.rng.choice(scenario.living).connection
        if connection is not None:
            scenario.world.note(f"{connection.member.name}'s connection breaks")
            connection.break_off()


def _silence_connection(scenario: Scenario) -> None:
    """The connection stays, and nothing comes through any more."""
    if scenario.living:
        connection = scenario.world.rng.choice(scenario.living).connection
        if connection is not None:
            scenario.world.note(f"{connection.member.name}'s connection falls silent")
            connection.is_silent = True


def _cut_off(scenario: Scenario) -> None:
    """A member is alone in the world for a while."""
    if scenario.living:
        member = scenario.world.rng.choice(scenario.living)
        scenario.world.note(f"{member.name} is cut off")
        member.is_cut_off = True
        scenario.world.later(scenario.world.rng.randint(300, 7_000), _reconnect, member)


def _reconnect(member: Member) -> None:
    member.is_cut_off = False


def _crash_coordinator(scenario: Scenario) -> None:
    cluster = scenario.cluster
    if not cluster.is_up(cluster.coordinator_node):
        return
    node_id = cluster.crash_coordinator(scenario.world.rng.choice((50, 500, 2_000, 5_000)))
    for member in scenario.living:
        if member.connection is not None and member.connection.node_id == node_id:
            member.connection.break_off()


def _move_coordinator(scenario: Scenario) -> None:
    if scenario.cluster.is_up(scenario.cluster.coordinator_node):
        scenario.cluster.move_coordinator()


def _slow_disk(scenario: Scenario) -> None:
    scenario.cluster.slowest_write_ms = scenario.world.rng.choice((4, 300, 2_000))


def _failing_disk(scenario: Scenario) -> None:
    scenario.cluster.write_failure_probability = scenario.world.rng.choice((0.0, 0.2))


def _slow_network(scenario: Scenario) -> None:
    scenario.network.slowest_ms = scenario.world.rng.choice((4, 60, 400))


FAULTS: Final = (
    _join,
    _join,
    _close,
    _crash,
    _restart,
    _stall,
    _change_topics,
    _add_partitions,
    _create_topic,
    _break_connection,
    _break_connection,
    _silence_connection,
    _cut_off,
    _crash_coordinator,
    _move_coordinator,
    _slow_disk,
    _failing_disk,
    _slow_network,
)


def run_seed(seed: int, *, tracing: bool = False, on_wire: bool | None = None) -> tuple[Result, list[str]]:
    """One run from its seed: how it ended, and its trace if asked for."""
    scenario = Scenario(seed, tracing=tracing, on_wire=on_wire)
    result = scenario.run()
    return result, scenario.world.trace
