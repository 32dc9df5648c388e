"""What can go wrong in a run, and what can go on in an orderly one. Each takes a scenario and does it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.sim.habits import Habits
from tests.sim.member import Member
from tests.sim.scenario import Scenario


def join(scenario: Scenario) -> None:
    if len(scenario.living) < 7:
        scenario.start(scenario.draw_habits())


def close(scenario: Scenario) -> None:
    if scenario.living:
        scenario.world.rng.choice(scenario.living).wants_to_close = True


def crash(scenario: Scenario) -> None:
    if scenario.living:
        scenario.world.rng.choice(scenario.living).die()


def restart(scenario: Scenario) -> None:
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


def stall(scenario: Scenario) -> None:
    if scenario.living:
        rng = scenario.world.rng
        rng.choice(scenario.living).stall_ms = rng.choice((500, 2_000, 6_000, 9_000))


def change_topics(scenario: Scenario) -> None:
    rng = scenario.world.rng
    members = [member for member in scenario.living if member.habits.pattern is None]
    if members:
        known = tuple(scenario.cluster.topics)
        rng.choice(members).change_topics(tuple(rng.sample(known, k=rng.randint(1, len(known)))))


def add_partitions(scenario: Scenario) -> None:
    topics = scenario.cluster.topics
    topic = scenario.world.rng.choice(tuple(topics))
    if topics[topic] < 8:
        topics[topic] += scenario.world.rng.randint(1, 2)
        scenario.world.note(f"{topic} has {topics[topic]} partitions")


def create_topic(scenario: Scenario) -> None:
    if len(scenario.cluster.topics) < 5:
        scenario.cluster.topics[f"t{len(scenario.cluster.topics)}"] = scenario.world.rng.randint(1, 4)


def break_connection(scenario: Scenario) -> None:
    if scenario.living:
        connection = scenario.world.rng.choice(scenario.living).connection
        if connection is not None:
            scenario.world.note(f"{connection.member.name}'s connection breaks")
            connection.break_off()


def silence_connection(scenario: Scenario) -> None:
    """The connection stays, and nothing comes through any more."""
    if scenario.living:
        connection = scenario.world.rng.choice(scenario.living).connection
        if connection is not None:
            scenario.world.note(f"{connection.member.name}'s connection falls silent")
            connection.is_silent = True


def cut_off(scenario: Scenario) -> None:
    """A member is alone in the world for a while."""
    if scenario.living:
        member = scenario.world.rng.choice(scenario.living)
        scenario.world.note(f"{member.name} is cut off")
        member.is_cut_off = True
        scenario.world.later(scenario.world.rng.randint(300, 7_000), _reconnect, member)


def _reconnect(member: Member) -> None:
    member.is_cut_off = False


def crash_coordinator(scenario: Scenario) -> None:
    cluster = scenario.cluster
    if not cluster.is_up(cluster.coordinator_node):
        return
    node_id = cluster.crash_coordinator(scenario.world.rng.choice((50, 500, 2_000, 5_000)))
    for member in scenario.living:
        if member.connection is not None and member.connection.node_id == node_id:
            member.connection.break_off()


def move_coordinator(scenario: Scenario) -> None:
    if scenario.cluster.is_up(scenario.cluster.coordinator_node):
        scenario.cluster.move_coordinator()


def slow_disk(scenario: Scenario) -> None:
    scenario.cluster.slowest_write_ms = scenario.world.rng.choice((4, 300, 2_000))


def failing_disk(scenario: Scenario) -> None:
    scenario.cluster.write_failure_probability = scenario.world.rng.choice((0.0, 0.2))


def slow_network(scenario: Scenario) -> None:
    scenario.network.slowest_ms = scenario.world.rng.choice((4, 60, 400))


FAULTS: Final = (
    join,
    join,
    close,
    crash,
    restart,
    stall,
    change_topics,
    add_partitions,
    create_topic,
    break_connection,
    break_connection,
    silence_connection,
    cut_off,
    crash_coordinator,
    move_coordinator,
    slow_disk,
    failing_disk,
    slow_network,
)
