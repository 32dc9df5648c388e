"""The kinds of run, and what each of them asserts.

- *chaos*: everything at once, then silence; the group must settle within a bounded time and stay settled.
- *static restart*: static members die and are back within their session; nothing else moves.
- *duplicate*: a second process takes an instance id; exactly one of the two is fenced.
- *away*: the coordinator is away; calls end in time, and wakeups are heard.
- *isolated*: a member is cut off for longer than its session. For bugs of leases; no seed draws it.
- *new topic*: a topic is created, then a pattern member joins: one rebalance covers both. No seed draws it.
- *orderly*: joins, clean leaves, new partitions, without faults: all is owned again within moments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millstream.errors import FencedInstanceIdError
from tests.sim import faults
from tests.sim.habits import CommitMode
from tests.sim.scenario import Result, Scenario, simulated
from tests.sim.world import Violation

SETTLE_MS: Final = 45_000
"""After the last fault: a session, a join that nobody answers, and another one, with room to spare."""


def chaos(scenario: Scenario) -> None:
    rng = scenario.world.rng
    ghost_probability = rng.choice((0.0, 0.3))
    scenario.until_healed(scenario.network, ghost_probability=ghost_probability, loss_probability=0.02)
    scenario.until_healed(scenario.network, slowest_ms=rng.choice((4, 8, 60)))
    for _ in range(rng.randint(1, 4)):
        scenario.start(scenario.draw_habits())
    end_ms = rng.randint(5_000, 12_000)
    pace_ms = rng.choice((300, 700, 1_500))
    drawn = rng.sample(faults.FAULTS, k=rng.randint(3, len(faults.FAULTS)))
    while scenario.world.now_ms < end_ms:
        scenario.run_for(rng.randint(1, 2 * pace_ms))
        rng.choice(drawn)(scenario)
    scenario.heal()
    if all(member.wants_to_close for member in scenario.living):
        scenario.start(scenario.draw_habits())
    scenario.run_for(7_000)  # time to notice the last faults: a request that times out, a refresh of metadata
    scenario.settle(SETTLE_MS)
    scenario.stay_settled()


def static_restart(scenario: Scenario) -> None:
    """A static member that is back within its session costs nobody anything (KIP-345)."""
    rng = scenario.world.rng
    scenario.calm_down()
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
            victim.close()
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


def duplicate(scenario: Scenario) -> None:
    """Two processes with one instance id: the newer one stays, the older one is told (KIP-345)."""
    rng = scenario.world.rng
    scenario.calm_down()
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


def orderly(scenario: Scenario) -> None:
    rng = scenario.world.rng
    scenario.invariants.is_orderly = True
    scenario.calm_down()
    for _ in range(rng.randint(1, 3)):
        scenario.start(scenario.draw_habits(static=False))
    scenario.settle(8_000)
    for _ in range(rng.randint(2, 5)):
        scenario.calm_down(False)
        scenario.run_for(rng.randint(0, 3_000))
        rng.choice((faults.join, _close_cleanly, faults.add_partitions, faults.change_topics))(scenario)
        if not scenario.living:
            scenario.start(scenario.draw_habits(static=False))
        scenario.run_for(1_000)
        scenario.calm_down()
        scenario.run_for(300)
        scenario.settle(8_000)
    scenario.stay_settled()


def away(scenario: Scenario) -> None:
    """The coordinator is away for longer than any call may take, and a rebalance has begun."""
    rng = scenario.world.rng
    scenario.calm_down()
    for _ in range(rng.randint(1, 3)):
        scenario.start(scenario.draw_habits())
    scenario.settle(10_000)
    scenario.run_for(rng.randint(0, 1_000))
    scenario.start(scenario.draw_habits())
    scenario.run_for(rng.randint(0, 1_000))
    if scenario.cluster.coordinator is not None:
        faults.take_away_coordinator(scenario, 25_000)
    for _ in range(rng.randint(2, 6)):
        scenario.run_for(rng.randint(1, 2_000))
        rng.choice((faults.wakeup, faults.wakeup, faults.close))(scenario)
    scenario.run_for(25_000)
    if not scenario.living:
        scenario.start(scenario.draw_habits())
    scenario.settle(SETTLE_MS)
    scenario.stay_settled()


def isolated(scenario: Scenario) -> None:
    """A member is cut off for longer than its session: it lets go before others take over."""
    rng = scenario.world.rng
    scenario.calm_down()
    for _ in range(rng.randint(2, 3)):
        scenario.start(scenario.draw_habits(static=False))
    scenario.settle(10_000)
    scenario.run_for(rng.randint(0, 2_000))
    victim = rng.choice(scenario.living)
    victim.is_cut_off = True
    scenario.run_for(rng.randint(6_000, 12_000))
    victim.is_cut_off = False
    scenario.run_for(7_000)
    scenario.settle(SETTLE_MS)
    scenario.stay_settled()


def new_topic(scenario: Scenario) -> None:
    """Members with a pattern look for new topics before they rejoin: else each finds them later, alone."""
    rng = scenario.world.rng
    max_age_ms = 20_000

    def start() -> None:
        habits = scenario.draw_habits(static=False)
        scenario.start(replace(habits, pattern="t", metadata_max_age_ms=max_age_ms))

    scenario.calm_down()
    for _ in range(rng.randint(1, 3)):
        start()
    scenario.settle(8_000)
    scenario.run_for(rng.randint(500, 2_000))
    scenario.cluster.topics["t9"] = rng.randint(1, 4)
    start()
    scenario.run_for(300)
    scenario.settle(8_000)
    generation = scenario.invariants.generation
    scenario.run_for(max_age_ms + 3_000)
    if scenario.invariants.generation != generation:
        scenario.invariants.fail("the group rebalanced again, for a topic that was there at its rebalance")


def _close_cleanly(scenario: Scenario) -> None:
    """Who closes is out of the group at once, not after its session."""
    if not scenario.living:
        return
    victim = scenario.world.rng.choice(scenario.living)
    member_id = victim.membership.metadata.member_id
    victim.close()
    while victim.is_alive:
        scenario.run_for(50)
    scenario.run_for(100)
    group = scenario.cluster.group()
    must_have_left = victim.habits.instance_id is None and victim.habits.close_ms > 0
    if group is not None and member_id in group.members and must_have_left:
        scenario.invariants.fail(f"{victim.name} has closed, and {member_id} is still a member")


Family = Callable[[Scenario], None]

_WEIGHTS: Final[tuple[tuple[Family, float], ...]] = (
    (chaos, 0.56),
    (static_restart, 0.08),
    (duplicate, 0.06),
    (orderly, 0.2),
    (away, 0.1),
)


def run_seed(seed: int, *, tracing: bool = False, family: Family | None = None) -> tuple[Result, list[str]]:
    """One run from its seed: how it ended, and its trace if asked for. The seed draws the family, too."""
    with simulated(seed):
        return _run(Scenario(seed, tracing=tracing), family)


def _run(scenario: Scenario, wanted: Family | None) -> tuple[Result, list[str]]:
    families, weights = zip(*_WEIGHTS, strict=True)
    family: Family = wanted or scenario.world.rng.choices(families, weights)[0]
    scenario.has_statics |= family in (static_restart, duplicate)
    scenario.world.note(f"{family.__name__}, {scenario.description}")
    try:
        family(scenario)
    except Violation as violation:
        return scenario.result(str(violation)), scenario.world.trace
    finally:
        scenario.end()
    return scenario.result(None), scenario.world.trace
