"""A long random walk of several drivers, beside a model of what must be in the tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from millstream.spark.sinks.base import ProgressConflictError
from tests.spark.sinks.driving import Driver, Step, Stopped, dies_at, nowhere, runs, step
from tests.spark.sinks.site import OnASite, Site, another

PARTITIONS = 2


@dataclass
class Model:
    """What must be in the tables: for each partition and offset, which run wrote it."""

    rows: dict[tuple[int, int], str] = field(default_factory=dict)
    rejected: dict[tuple[int, int], str] = field(default_factory=dict)

    def load(self, done: Step, run: str) -> None:
        for table, wanted in ((self.rows, done.good), (self.rejected, done.rejects)):
            for offset in range(done.start, done.end):
                table.pop((done.partition, offset), None)
            table.update({(done.partition, offset): run for offset in wanted})


class RandomWalk(OnASite):
    @pytest.mark.parametrize("seed", range(3))
    def test_random_walk(self, site: Site, seed: int) -> None:
        """Cycles, races, crashes between the tables, rewinds and compactions, in any order."""
        walk = Walk(site, random.Random(seed), self.can_replace)
        for number in range(25):
            walk.step(number)
        walk.check()


class Walk:
    def __init__(self, site: Site, chance: random.Random, can_replace: bool) -> None:
        self.site, self.chance, self.can_replace = site, chance, can_replace
        self.model = Model()
        self.drivers = [another(site), another(site)]

    def step(self, number: int) -> None:
        driver = self.chance.choice(self.drivers)
        actions = [self.cycle, self.cycle, self.race, self.crash, self.compact]
        if self.can_replace:
            actions.append(self.rewind)
        self.chance.choice(actions)(driver, f"run {number}")
        if number % 5 == 0:
            self.check()

    def next_step(self, driver: Driver) -> Step:
        partition = self.chance.randrange(PARTITIONS)
        standing = driver.standing(partition)
        start = standing.rows.next_offset if standing.rows is not None else 0
        end = start + self.chance.randrange(12)
        some = [offset for offset in range(start, end) if self.chance.random() < 0.3]
        half = len(some) // 2
        return step(partition, start, end, bad=some[:half], gaps=frozenset(some[half:]))

    def cycle(self, driver: Driver, run: str) -> None:
        wanted = self.next_step(driver)
        driver.load(wanted, run=run)
        self.model.load(wanted, run)

    def race(self, driver: Driver, run: str) -> None:
        wanted = self.next_step(driver)
        if wanted.start == wanted.end:
            return
        late = driver.plan(wanted, run="late")
        other = another(self.site)
        other.load(wanted, run=run)
        self.model.load(wanted, run)
        with pytest.raises(ProgressConflictError):
            driver.sink.commit(late, nowhere)
        driver.sink.abandon(late.cycle_id, late.written)

    def crash(self, driver: Driver, run: str) -> None:
        wanted = self.next_step(driver)
        cycle = driver.plan(wanted, run=run)
        try:
            driver.sink.commit(cycle, dies_at("between tables"))
        except Stopped:
            keep = dict(self.model.rows)
            self.model.load(wanted, run)
            self.model.rows = keep
        else:
            self.model.load(wanted, run)

    def rewind(self, driver: Driver, run: str) -> None:
        partition = self.chance.randrange(PARTITIONS)
        standing = driver.standing(partition)
        if standing.rows is None or standing.rows.next_offset == 0:
            return
        driver.anchor(partition, self.chance.randrange(standing.rows.next_offset))

    def compact(self, driver: Driver, run: str) -> None:
        driver.sink.compact(1 << 20, nowhere)

    def check(self) -> None:
        for found, wanted in (
            (self.site.rows(), self.model.rows),
            (self.site.rejected(), self.model.rejected),
        ):
            assert len(found) == len(wanted)
            for partition in range(PARTITIONS):
                assert runs(found, partition) == {o: run for (p, o), run in wanted.items() if p == partition}
