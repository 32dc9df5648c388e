"""Rule 5, and what a crash at any point leaves behind."""

from __future__ import annotations

import pytest

from millstream.errors import MillstreamError
from millstream.spark.sinks.base import Progress, SinkError, Standing
from tests.spark.sinks.driving import TOPIC_ID, Driver, Stopped, dies_at, nowhere, offsets, runs, step
from tests.spark.sinks.site import OnASite, Site, another


class CrashRules(OnASite):
    def test_a_store_that_refuses_changes_nothing(self, site: Site, driver: Driver) -> None:
        """18: the insert fails, and the offset does not advance."""
        driver.load(step(0, 0, 10))
        cycle = driver.plan(step(0, 10, 20))
        with site.refusing(), pytest.raises(MillstreamError):
            driver.sink.commit(cycle, nowhere)
        assert driver.next_offset() == 10
        assert offsets(site.rows()) == list(range(10))
        driver.load(step(0, 10, 20))
        assert offsets(site.rows()) == list(range(20))

    def test_a_lost_answer_is_found_out(self, site: Site, driver: Driver) -> None:
        """8: committed, or not? The sink reads before it answers."""
        driver.load(step(0, 0, 10))
        cycle = driver.plan(step(0, 10, 20, bad={12}))
        with site.answer_lost():
            driver.sink.commit(cycle, nowhere)
        assert driver.next_offset() == 20
        driver.load(step(0, 20, 30))
        assert offsets(site.rows()) == [o for o in range(30) if o != 12]
        assert offsets(site.rejected()) == [12]

    def test_a_commit_that_did_nothing_is_no_success(self, site: Site, driver: Driver) -> None:
        """7: the store said yes; reading back says no."""
        cycle = driver.plan(step(0, 0, 10))
        with site.swallowing(), pytest.raises(SinkError):
            driver.sink.commit(cycle, nowhere)
        assert driver.next_offset() is None
        driver.load(step(0, 0, 10))
        assert offsets(site.rows()) == list(range(10))

    def test_a_crash_between_two_tables(self, site: Site, driver: Driver) -> None:
        """1, 22: rejected rows came first; the rerun goes on from the rows and doubles nothing."""
        driver.load(step(0, 0, 10, bad={1}))
        cycle = driver.plan(step(0, 10, 20, bad={12, 13}), run="crashed")
        try:
            driver.sink.commit(cycle, dies_at("between tables"))
        except Stopped:
            _in_between(site, another(site).standing())
        later = another(site)
        start = later.next_offset() or 0
        later.load(step(0, start, 25, bad={12, 13, 22}), run="rerun")
        assert offsets(site.rows()) == [o for o in range(25) if o not in {1, 12, 13, 22}]
        assert offsets(site.rejected()) == [1, 12, 13, 22]
        assert later.standing() == Standing(Progress(25, 25, TOPIC_ID), Progress(25, 25, TOPIC_ID))

    def test_a_crash_between_two_tables_and_other_checks_afterwards(self, site: Site, driver: Driver) -> None:
        """The rerun rejects other records than the run that died: each is in one table all the same."""
        driver.load(step(0, 0, 10, bad={1}))
        cycle = driver.plan(step(0, 10, 20, bad={12, 13, 18}), run="crashed")
        try:
            driver.sink.commit(cycle, dies_at("between tables"))
        except Stopped:
            later = another(site)
            later.load(step(0, 10, 15, bad={13, 14}), run="rerun")
            assert later.standing().rejected == Progress(15, 20, TOPIC_ID)
            later.load(step(0, 15, 20, bad={17}), run="rerun")
            assert offsets(site.rows()) == [o for o in range(20) if o not in {1, 13, 14, 17}]
            assert offsets(site.rejected()) == [1, 13, 14, 17]
            assert runs(site.rejected())[13] == "rerun"
        else:
            assert driver.next_offset() == 20, "both tables in one transaction"

    def test_a_crash_between_two_tables_of_the_first_cycle(self, site: Site, driver: Driver) -> None:
        cycle = driver.plan(step(0, 0, 10, bad={2}))
        try:
            driver.sink.commit(cycle, dies_at("between tables"))
        except Stopped:
            assert driver.standing() == Standing(None, Progress(10, 10, TOPIC_ID))
        later = another(site)
        later.load(step(0, later.next_offset() or 0, 12, bad={2}))
        assert offsets(site.rows()) == [o for o in range(12) if o != 2]
        assert offsets(site.rejected()) == [2]

    def test_a_crash_between_two_tables_in_a_rewind(self, site: Site, driver: Driver) -> None:
        if not self.can_replace:
            pytest.skip("this sink only appends")
        driver.load(step(0, 0, 20, bad={5}), run="first")
        driver.anchor(0, 0)
        cycle = driver.plan(step(0, 0, 10, bad={6}), run="crashed")
        try:
            driver.sink.commit(cycle, dies_at("between tables"))
        except Stopped:
            assert driver.standing().rejected == Progress(10, 20, TOPIC_ID)
            assert driver.standing().rows == Progress(0, 20, TOPIC_ID)
        later = another(site)
        later.load(step(0, later.next_offset() or 0, 20, bad={6, 15}), run="rerun")
        assert offsets(site.rows()) == [o for o in range(20) if o not in {6, 15}]
        assert offsets(site.rejected()) == [6, 15]
        assert runs(site.rejected())[15] == "rerun"

    def test_a_zombie_between_two_tables(self, site: Site, driver: Driver) -> None:
        """2, 3: it stopped between the tables, another driver took over, then it woke up."""
        cycle = driver.plan(step(0, 0, 10, bad={2}), run="zombie")
        took_over: list[Standing] = []

        def sleep(point: str) -> None:
            if point == "between tables":
                other = another(site)
                other.load(step(0, 0, 15, bad={2, 12}), run="taken over")
                took_over.append(other.standing())

        try:
            driver.sink.commit(cycle, sleep)
        except MillstreamError:
            assert took_over
        start = driver.next_offset() or 0
        driver.load(step(0, start, 20, bad={2, 12}))
        assert offsets(site.rows()) == [o for o in range(20) if o not in {2, 12}]
        assert offsets(site.rejected()) == [2, 12]


def _in_between(site: Site, standing: Standing) -> None:
    assert standing == Standing(Progress(10, 10, TOPIC_ID), Progress(20, 20, TOPIC_ID))
    assert offsets(site.rows()) == [0, *range(2, 10)]
    assert offsets(site.rejected()) == [1, 12, 13]
