"""A large group settles: ``python -m tests.sim.scale --members 1000 --partitions 10000``."""

# ruff: noqa: T201 - a command speaks
from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from tests.sim.habits import CommitMode, Habits
from tests.sim.scenario import Scenario, simulated


@dataclass(frozen=True, slots=True)
class Settled:
    """How a group settled: its generations, in simulated time and in real time."""

    what: str
    generations: int
    simulated_s: float
    took_s: float


def settle_large_group(members: int, partitions: int, strategy: str) -> list[Settled]:
    """Start all members, then stop one, then start another, and let the group settle each time."""
    with simulated(0):
        scenario = Scenario(0)
        try:
            return _run(scenario, members, partitions, strategy)
        finally:
            scenario.end()


def _run(scenario: Scenario, members: int, partitions: int, strategy: str) -> list[Settled]:
    scenario.calm_down()
    scenario.cluster.topics.clear()
    for number in range(10):
        scenario.cluster.topics[f"t{number}"] = partitions // 10
    scenario.cluster.logs.end_production()
    habits = Habits(
        topics=tuple(scenario.cluster.topics),
        assignors=(strategy,),
        commits=CommitMode.SYNC,
        poll_ms=2_000,
        session_timeout_ms=45_000,
        heartbeat_interval_ms=3_000,
        max_poll_interval_ms=300_000,
        fetch_max_wait_ms=10_000,
        metadata_max_age_ms=300_000,
    )
    for number in range(members):
        scenario.world.later(number, scenario.start, habits)
    steps = [_settle(scenario, f"{members} members join", members)]
    scenario.living[0].close()
    steps.append(_settle(scenario, "one leaves"))
    scenario.start(habits)
    steps.append(_settle(scenario, "one joins"))
    return steps


def _settle(scenario: Scenario, what: str, lead_ms: int = 100) -> Settled:
    began, began_ms = time.perf_counter(), scenario.world.now_ms
    generation = scenario.invariants.generation
    scenario.run_for(lead_ms)
    scenario.settle(120_000)
    simulated_s = (scenario.world.now_ms - began_ms) / 1000
    generations = scenario.invariants.generation - generation
    return Settled(what, generations, simulated_s, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.scale", description=__doc__)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--strategy", default="cooperative-sticky")
    options = parser.parse_args()
    for step in settle_large_group(options.members, options.partitions, options.strategy):
        print(
            f"{step.what}: settled in {step.generations} generations, "
            f"{step.simulated_s:.1f} s simulated, {step.took_s:.1f} s real"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
