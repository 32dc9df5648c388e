"""Rule 4: a rewind replaces; and rejected rows that were repaired move."""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import timedelta

import pytest

from millstream.spark.sinks.base import Position, Progress, Standing
from tests.spark.sinks.driving import (
    REMADE_ID,
    TOPIC,
    TOPIC_ID,
    Driver,
    Stopped,
    by_run,
    dies_at,
    nowhere,
    offsets,
    runs,
    step,
)
from tests.spark.sinks.site import OnASite, Site, another


class ReplaceRules(OnASite):
    @pytest.fixture
    def rewinding(self, driver: Driver) -> Driver:
        """A driver whose sink can replace; the test is skipped where that cannot be."""
        if not self.can_replace:
            pytest.skip("this sink only appends")
        return driver

    def test_an_anchor_moves_progress_back_and_takes_nothing_away(
        self, site: Site, rewinding: Driver
    ) -> None:
        rewinding.load(step(0, 0, 20, bad={3}))
        rewinding.anchor(0, 5)
        assert rewinding.standing() == Standing(Progress(5, 20, TOPIC_ID), Progress(5, 20, TOPIC_ID))
        assert offsets(site.rows()) == [o for o in range(20) if o != 3]
        assert offsets(site.rejected()) == [3]

    def test_a_rewind_replaces_in_steps(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 20), step(1, 0, 20), run="first")
        rewinding.anchor(0, 5)
        for start in (5, 10, 15, 20):
            rewinding.load(step(0, start, start + 5), run=f"again {start}")
            assert offsets(site.rows()) == list(range(max(20, start + 5)))
        found = runs(site.rows())
        assert [found[o] for o in (4, 5, 9, 10, 24)] == [
            "first",
            "again 5",
            "again 5",
            "again 10",
            "again 20",
        ]
        assert set(runs(site.rows(), 1).values()) == {"first"}
        assert rewinding.rows_progress() == Progress(25, 25, TOPIC_ID)

    def test_a_rewind_without_an_anchor(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 20, bad={3, 7}), run="first")
        rewinding.load(step(0, 5, 15, bad={8}), run="again")
        assert offsets(site.rows()) == [o for o in range(20) if o not in {3, 8}]
        assert offsets(site.rejected()) == [3, 8]
        assert rewinding.standing() == Standing(Progress(15, 20, TOPIC_ID), Progress(15, 20, TOPIC_ID))

    def test_rows_change_tables(self, site: Site, rewinding: Driver) -> None:
        """What was loaded is now rejected, and the reverse."""
        rewinding.load(step(0, 0, 10, bad={1, 2}))
        rewinding.anchor(0, 0)
        rewinding.load(step(0, 0, 10, bad={2, 3}))
        assert offsets(site.rows()) == [0, 1, *range(4, 10)]
        assert offsets(site.rejected()) == [2, 3]

    def test_a_rewind_that_finds_less(self, site: Site, rewinding: Driver) -> None:
        """Compaction took records away in between: their rows go too."""
        rewinding.load(step(0, 0, 10))
        rewinding.anchor(0, 0)
        rewinding.load(step(0, 0, 10, gaps=frozenset(range(2, 9))))
        assert offsets(site.rows()) == [0, 1, 9]

    def test_a_rewind_past_the_high_mark(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 10))
        rewinding.load(step(0, 5, 30), run="again")
        assert offsets(site.rows()) == list(range(30))
        assert rewinding.rows_progress() == Progress(30, 30, TOPIC_ID)

    def test_a_rewind_of_many_small_cycles(self, site: Site, rewinding: Driver) -> None:
        for start in range(0, 30, 3):
            rewinding.load(step(0, start, start + 3, bad={start}), step(1, start, start + 3))
        rewinding.load(step(0, 4, 26, bad={4, 5}), run="again")
        assert offsets(site.rows()) == [o for o in range(30) if o not in {0, 3, 4, 5, 27}]
        assert offsets(site.rejected()) == [0, 3, 4, 5, 27]
        assert offsets(site.rows(), 1) == list(range(30))

    def test_a_rewind_leaves_other_groups_topics_alone(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 10), step(0, 0, 10, topic="payments"))
        rewinding.load(step(0, 0, 10, gaps=frozenset(range(10))))
        assert {row["_topic"] for row in site.rows()} == {"payments"}

    def test_a_topic_made_anew_is_appended(self, site: Site, driver: Driver) -> None:
        """5: under its new id nothing is replaced, and the new id is what stands."""
        driver.load(step(0, 0, 10), run="old")
        driver.anchor(0, 0, topic_id=REMADE_ID)
        driver.load(step(0, 0, 4, topic_id=REMADE_ID), run="new")
        assert offsets(site.rows()) == sorted([*range(10), *range(4)])
        assert driver.rows_progress() == Progress(4, 4, REMADE_ID, 1)
        driver.load(step(0, 4, 6, topic_id=REMADE_ID))
        assert driver.rows_progress() == Progress(6, 6, REMADE_ID, 1)

    @pytest.fixture
    def remade(self, rewinding: Driver) -> Driver:
        """The topic was loaded, deleted and made anew, and loaded again; another one was not."""
        rewinding.load(step(0, 0, 10, bad={2, 3, 7}), step(0, 0, 10, topic="payments"), run="old")
        rewinding.anchor(0, 0, topic_id=REMADE_ID)
        rewinding.load(step(0, 0, 6, bad={3, 4}, topic_id=REMADE_ID), run="new")
        return rewinding

    def test_a_rewind_leaves_rows_of_an_earlier_topic_alone(self, site: Site, remade: Driver) -> None:
        """5: they have the same topic, partition and offsets."""
        remade.sink.compact(1 << 30, nowhere)
        remade.anchor(0, 0, topic_id=REMADE_ID)
        remade.load(step(0, 0, 6, bad={3, 5}, topic_id=REMADE_ID), run="again")
        old = [o for o in range(10) if o not in {2, 3, 7}]
        assert by_run(site.rows()) == {"old": old, "again": [0, 1, 2, 4]}
        assert by_run(site.rejected()) == {"old": [2, 3, 7], "again": [3, 5]}
        assert sum(row["_topic"] == "payments" for row in site.rows()) == 10
        remade.load(step(0, 2, 8, topic="payments"), run="other")
        assert by_run(site.rows(), "payments") == {"old": [0, 1, 8, 9], "other": [2, 3, 4, 5, 6, 7]}

    def test_one_commit_replaces_of_a_topic_made_anew_and_of_another(
        self, site: Site, remade: Driver
    ) -> None:
        """Rows with a label and rows without one, in the same files."""
        remade.sink.compact(1 << 30, nowhere)
        steps = step(0, 0, 6, bad={3}, topic_id=REMADE_ID), step(0, 0, 8, bad={1}, topic="payments")
        for run in ("again", "and again"):
            remade.load(*steps, run=run)
            old = [o for o in range(10) if o not in {2, 3, 7}]
            assert by_run(site.rows()) == {"old": old, run: [0, 1, 2, 4, 5]}
            assert by_run(site.rows(), "payments") == {"old": [8, 9], run: [0, 2, 3, 4, 5, 6, 7]}
            assert by_run(site.rejected(), "payments") == {run: [1]}

    def test_a_topic_is_made_anew_twice(self, site: Site, remade: Driver) -> None:
        third = "f" * 32
        remade.anchor(0, 0, topic_id=third)
        remade.load(step(0, 0, 4, topic_id=third), run="third")
        assert remade.rows_progress() == Progress(4, 4, third, 2)
        remade.load(step(0, 1, 3, topic_id=third), run="again")
        found = by_run(site.rows())
        assert (found["new"], found["third"], found["again"]) == ([0, 1, 2, 5], [0, 3], [1, 2])
        assert len(found["old"]) == 7

    def test_a_crash_between_tables_leaves_rows_of_an_earlier_topic_alone(
        self, site: Site, remade: Driver
    ) -> None:
        """What the faster table has is replaced, of this topic only."""
        cycle = remade.plan(step(0, 6, 9, bad={7}, topic_id=REMADE_ID), run="crashed")
        with suppress(Stopped):
            remade.sink.commit(cycle, dies_at("between tables"))
        again = another(site)
        start = again.next_offset() or 0
        again.load(step(0, start, 10, bad={7, 8} - set(range(start)), topic_id=REMADE_ID), run="again")
        assert by_run(site.rejected())["old"] == [2, 3, 7]
        assert offsets(site.rejected()) == [2, 3, 3, 4, 7, 7] + ([8] if start == 6 else [])

    def test_repaired_rows_of_a_topic_made_anew(self, site: Site, remade: Driver) -> None:
        written = remade.write(uuid.uuid4().hex, step(0, 3, 5, topic_id=REMADE_ID), "repaired")
        for _ in range(2):
            remade.sink.readmit([Position(TOPIC, 0, 3), Position(TOPIC, 0, 4)], [written], nowhere)
            old = [o for o in range(10) if o not in {2, 3, 7}]
            assert by_run(site.rows()) == {"old": old, "new": [0, 1, 2, 5], "repaired": [3, 4]}
            assert by_run(site.rejected()) == {"old": [2, 3, 7]}

    def test_positions_of_a_topic_made_anew(self, site: Site, remade: Driver) -> None:
        find = getattr(remade.sink, "range_start", None)
        if find is None:
            pytest.skip("this sink does not look for positions")
        assert find(TOPIC, 0, 9) == 5 and find("payments", 0, 9) == 9

    def test_another_partition_commits_during_a_rewind(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 20), step(1, 0, 20))
        cycle = rewinding.plan(step(0, 5, 15), run="again")
        another(site).load(step(1, 20, 30))
        rewinding.sink.commit(cycle, nowhere)
        assert offsets(site.rows(), 0) == list(range(20))
        assert offsets(site.rows(), 1) == list(range(30))

    # -- readmitting

    def test_repaired_rows_change_tables(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 10, bad={2, 3, 4}))
        before = rewinding.standing()
        written = rewinding.write(uuid.uuid4().hex, step(0, 2, 4), "repaired")
        moved = [Position(TOPIC, 0, 2), Position(TOPIC, 0, 3)]
        for _ in range(2):
            rewinding.sink.readmit(moved, [written], nowhere)
            assert offsets(site.rows()) == [0, 1, 2, 3, *range(5, 10)]
            assert offsets(site.rejected()) == [4]
        assert rewinding.standing() == before

    def test_a_crash_while_readmitting(self, site: Site, rewinding: Driver) -> None:
        rewinding.load(step(0, 0, 10, bad={2, 3}))
        moved = [Position(TOPIC, 0, 2), Position(TOPIC, 0, 3)]
        written = rewinding.write(uuid.uuid4().hex, step(0, 2, 4), "crashed")
        try:
            rewinding.sink.readmit(moved, [written], dies_at("between tables"))
        except Stopped:
            assert offsets(site.rejected()) == [2, 3]
        again = another(site)
        anew = again.write(uuid.uuid4().hex, step(0, 2, 4), "repaired")
        again.sink.readmit(moved, [anew], nowhere)
        assert offsets(site.rows()) == list(range(10))
        assert site.rejected() == []
        assert runs(site.rows())[2] == "repaired"

    @pytest.mark.parametrize("until", [5, 10])
    def test_a_rewind_while_readmitting(self, site: Site, rewinding: Driver, until: int) -> None:
        """It rejects again what is just moved, all of it or half: each record is in one table."""
        rewinding.load(step(0, 0, 10, bad={2, 3, 7}), run="first")
        two = step(0, 2, 8, gaps=frozenset({3, 4, 5, 6}))
        written = rewinding.write(uuid.uuid4().hex, two, "repaired")

        def rewind(point: str) -> None:
            if point == "between tables":
                other = another(site)
                other.now += timedelta(seconds=1)
                other.anchor(0, 0)
                other.load(step(0, 0, until, bad={2, 3, 7}), run="again")

        rewinding.sink.readmit([Position(TOPIC, 0, 2), Position(TOPIC, 0, 7)], [written], rewind)
        found = offsets(site.rows()) + offsets(site.rejected())
        assert sorted(found) == list(range(10))
        assert 3 in offsets(site.rejected())
