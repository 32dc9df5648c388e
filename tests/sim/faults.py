"""The faults of a chaotic run, each declared in one place: its code, its weight and its line in README.md.

To add one, write a function with ``@fault()`` and copy its docstring into README.md (a test compares
them). A fault that lasts sets attributes with ``scenario.until_healed``, which are restored when faults end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.sim.habits import Habits
from tests.sim.scenario import Scenario

Fault = Callable[[Scenario], None]

FAULTS: Final[list[Fault]] = []
"""What a seed draws from: each fault as often as its weight says."""


def fault(weight: int = 1) -> Callable[[Fault], Fault]:
    """Declare a fault, which is drawn ``weight`` times as often as others."""

    def declare(function: Fault) -> Fault:
        FAULTS.extend([function] * weight)
        return function

    return declare


@fault(weight=2)
def join(scenario: Scenario) -> None:
    """A new member starts."""
    if len(scenario.living) < 5:
        scenario.start(scenario.draw_habits())


@fault()
def close(scenario: Scenario) -> None:
    """A member closes its consumer."""
    if scenario.living:
        scenario.world.rng.choice(scenario.living).close()


@fault()
def crash(scenario: Scenario) -> None:
    """A member's process dies."""
    if scenario.living:
        scenario.world.rng.choice(scenario.living).die()


@fault()
def restart(scenario: Scenario) -> None:
    """A member's process dies, and another one like it starts, with the same instance id if it has one."""
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


@fault()
def stall(scenario: Scenario) -> None:
    """A user does not poll for a while, perhaps for longer than max.poll.interval.ms."""
    if scenario.living:
        rng = scenario.world.rng
        rng.choice(scenario.living).stall(rng.choice((500, 2_000, 6_000, 9_000)))


@fault()
def wakeup(scenario: Scenario) -> None:
    """Another thread wakes a user up."""
    if scenario.living:
        member = scenario.world.rng.choice(scenario.living)
        scenario.world.note(f"{member.name} is woken up")
        member.wakeup()


@fault()
def fail_core(scenario: Scenario) -> None:
    """A core of a member raises an exception; poll() must raise it, and the user gives up."""
    if scenario.living:
        member = scenario.world.rng.choice(scenario.living)
        scenario.world.note(f"a core of {member.name} fails")
        member.fail_core()


@fault()
def change_topics(scenario: Scenario) -> None:
    """A member changes its subscription."""
    rng = scenario.world.rng
    members = [member for member in scenario.living if member.habits.pattern is None]
    if members:
        known = tuple(scenario.cluster.topics)
        rng.choice(members).change_topics(tuple(rng.sample(known, k=rng.randint(1, len(known)))))


@fault()
def add_partitions(scenario: Scenario) -> None:
    """A topic grows by one or two partitions."""
    topics = scenario.cluster.topics
    topic = scenario.world.rng.choice(tuple(topics))
    if topics[topic] < 8:
        topics[topic] += scenario.world.rng.randint(1, 2)
        scenario.world.note(f"{topic} has {topics[topic]} partitions")


@fault()
def create_topic(scenario: Scenario) -> None:
    """A topic is created, which members with a pattern pick up."""
    if len(scenario.cluster.topics) < 5:
        scenario.cluster.topics[f"t{len(scenario.cluster.topics)}"] = scenario.world.rng.randint(1, 4)


@fault(weight=2)
def break_connection(scenario: Scenario) -> None:
    """A member's connection breaks, with requests in flight."""
    if scenario.living:
        connections = scenario.world.rng.choice(scenario.living).connections
        if connections:
            connection = scenario.world.rng.choice(connections)
            scenario.world.note(f"{connection.member.name}'s connection breaks")
            connection.break_off()


@fault()
def silence_connection(scenario: Scenario) -> None:
    """A member's connection stays open, but nothing gets through any more."""
    if scenario.living:
        connections = scenario.world.rng.choice(scenario.living).connections
        if connections:
            connection = scenario.world.rng.choice(connections)
            scenario.world.note(f"{connection.member.name}'s connection falls silent")
            connection.is_silent = True


@fault()
def cut_off(scenario: Scenario) -> None:
    """A member cannot reach any broker for a while."""
    if scenario.living:
        member = scenario.world.rng.choice(scenario.living)
        scenario.world.note(f"{member.name} is cut off")
        scenario.until_healed(member, is_cut_off=True)
        scenario.world.later(scenario.world.rng.randint(300, 7_000), setattr, member, "is_cut_off", False)


@fault()
def crash_coordinator(scenario: Scenario) -> None:
    """The coordinator's broker crashes and restarts; of the writes in progress, any prefix survives."""
    cluster = scenario.cluster
    if not cluster.is_up(cluster.coordinator_node):
        return
    take_away_coordinator(scenario, scenario.world.rng.choice((50, 500, 2_000, 5_000)))


def take_away_coordinator(scenario: Scenario, down_ms: int) -> None:
    """The coordinator's broker is down for so long."""
    node_id = scenario.cluster.crash_coordinator(down_ms)
    for member in scenario.living:
        for connection in list(member.connections):
            if connection.node_id == node_id:
                connection.break_off()


@fault()
def move_coordinator(scenario: Scenario) -> None:
    """The group moves to another broker."""
    if scenario.cluster.is_up(scenario.cluster.coordinator_node):
        scenario.cluster.move_coordinator()


@fault(weight=2)
def elect_leaders(scenario: Scenario) -> None:
    """Partitions get other leaders, or the same ones in a new epoch, five times in three seconds."""
    for _ in range(5):
        scenario.world.later(scenario.world.rng.randint(0, 3_000), scenario.cluster.logs.elect)


@fault()
def slow_disk(scenario: Scenario) -> None:
    """Writes of the coordinator take up to two seconds."""
    slowest_ms = scenario.world.rng.choice((4, 300, 2_000))
    scenario.until_healed(scenario.cluster, slowest_write_ms=slowest_ms)


@fault()
def failing_disk(scenario: Scenario) -> None:
    """One in five writes of the coordinator fails."""
    probability = scenario.world.rng.choice((0.0, 0.2))
    scenario.until_healed(scenario.cluster, write_failure_probability=probability)


@fault()
def slow_network(scenario: Scenario) -> None:
    """Messages take up to 400 ms."""
    scenario.until_healed(scenario.network, slowest_ms=scenario.world.rng.choice((4, 60, 400)))
