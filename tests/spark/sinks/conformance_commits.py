"""Rules 1, 2 and 3: invisible until committed, rows with progress, and compare before set."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from millstream.spark.sinks.base import Cycle, Loss, LostRange, Progress, ProgressConflictError, Standing
from tests.spark.sinks.driving import (
    NOON,
    RAW_TABLES,
    REMADE_ID,
    TOPIC,
    TOPIC_ID,
    Driver,
    nowhere,
    offsets,
    rejected_batch,
    rows_batch,
    step,
)
from tests.spark.sinks.site import OnASite, Site, another
from tests.waiting import SECONDS


class CommitRules(OnASite):
    # -- what a commit does

    def test_nothing_is_known_of_a_partition_that_was_never_loaded(self, driver: Driver) -> None:
        assert driver.standing() == Standing(None, None)

    def test_a_commit_shows_rows_rejected_rows_and_progress(self, site: Site, driver: Driver) -> None:
        driver.load(step(0, 0, 10, bad={3, 4}))
        assert offsets(site.rows()) == [0, 1, 2, 5, 6, 7, 8, 9]
        assert offsets(site.rejected()) == [3, 4]
        assert driver.standing() == Standing(Progress(10, 10, TOPIC_ID), Progress(10, 10, TOPIC_ID))

    def test_a_rejected_row_says_where_it_came_from_and_why(self, site: Site, driver: Driver) -> None:
        """22: the raw bytes, the position and the reason are there."""
        driver.load(step(2, 40, 42, bad={41}), run="no such country")
        (row,) = site.rejected()
        assert (row["topic"], row["partition"], row["offset"]) == (TOPIC, 2, 41)
        assert (bytes(row["value"]), bytes(row["key"]), row["reason"]) == (b"\xff41", b"k", "no such country")
        assert row["timestamp"] == row["rejected_at"] == NOON

    def test_another_driver_sees_the_same_standing(self, site: Site, driver: Driver) -> None:
        driver.load(step(0, 0, 10), step(1, 5, 9))
        later = another(site)
        assert later.standing(0) == driver.standing(0)
        assert later.standing(1).rows == Progress(9, 9, TOPIC_ID, low_offset=5)

    def test_cycle_after_cycle(self, site: Site, driver: Driver) -> None:
        for start in range(0, 40, 10):
            driver.load(step(0, start, start + 10, bad={start}), step(1, start, start + 10))
        assert offsets(site.rows(), 0) == [o for o in range(40) if o % 10]
        assert offsets(site.rows(), 1) == list(range(40))
        assert offsets(site.rejected()) == [0, 10, 20, 30]

    def test_raw_landing(self, site: Site) -> None:
        driver = another(site, RAW_TABLES)
        driver.load(step(0, 0, 3))
        assert driver.standing() == Standing(Progress(3, 3, TOPIC_ID), None)
        rows = sorted(site.rows(), key=lambda row: int(row["offset"]))
        assert [bytes(row["value"]) for row in rows] == [b"value-0", b"value-1", b"value-2"]
        assert rows[0]["key"] is None
        assert rows[0]["timestamp"] == NOON

    def test_many_tasks_in_one_cycle(self, site: Site, driver: Driver) -> None:
        first = driver.plan(step(0, 0, 30, bad={7}))
        pieces = [
            driver.write(first.cycle_id, step(0, start, start + 10, bad={7}), "pieces")
            for start in (20, 0, 10)
        ]
        driver.sink.commit(Cycle("lake", first.cycle_id, first.advances, tuple(pieces)), nowhere)
        assert offsets(site.rows()) == [o for o in range(30) if o != 7]
        assert offsets(site.rejected()) == [7]

    def test_a_log_that_starts_late_and_has_gaps(self, site: Site, driver: Driver) -> None:
        driver.load(step(0, 1000, 1010, gaps=frozenset({1003, 1009})))
        assert offsets(site.rows()) == [1000, 1001, 1002, 1004, 1005, 1006, 1007, 1008]
        assert driver.next_offset() == 1010

    def test_groups_stand_apart(self, site: Site, driver: Driver) -> None:
        driver.load(step(0, 0, 10))
        assert another(site, group="lake/orders").standing() == Standing(None, None)
        assert another(site, group="lak").standing() == Standing(None, None)
        ask = getattr(driver.sink, "other_groups", None)
        if ask is not None:
            assert ask("lake/orders", [TOPIC, "none"]) == {TOPIC: frozenset({"lake"}), "none": frozenset()}
            assert ask("lake", [TOPIC]) == {TOPIC: frozenset()}

    def test_two_groups_that_begin_together(self, site: Site, driver: Driver) -> None:
        """Both were planned when no group had loaded the topic; the second would double every record."""
        if not hasattr(driver.sink, "other_groups"):
            pytest.skip("this sink does not tell groups apart")
        second = another(site, group="second")
        plans = [(each, each.plan(step(0, 0, 0), step(1, 0, 0))) for each in (driver, second)]
        cycles = [
            (each, replace(cycle, advances=tuple(replace(one, alone=True) for one in cycle.advances)))
            for each, cycle in plans
        ]
        driver.sink.commit(cycles[0][1], nowhere)
        with pytest.raises(ProgressConflictError, match="group lake has just begun to load orders"):
            second.sink.commit(cycles[1][1], nowhere)
        assert second.rows_progress() is None
        driver.load(step(0, 0, 5))
        assert offsets(site.rows()) == [0, 1, 2, 3, 4]

    def test_offsets_and_partitions_beyond_the_usual(self, site: Site, driver: Driver) -> None:
        far = (1 << 62) + 5
        driver.load(step(9999, far, far + 2))
        assert driver.standing(9999).rows == Progress(far + 2, far + 2, TOPIC_ID, low_offset=far)
        assert offsets(site.rows(), 9999) == [far, far + 1]

    # -- progress without rows

    def test_progress_alone(self, site: Site, driver: Driver) -> None:
        """6, 10: nothing to write is no reason to stand still, and leaves no empty file."""
        driver.anchor(0, 42)
        assert driver.standing() == Standing(*[Progress(42, 42, TOPIC_ID, low_offset=42)] * 2)
        assert site.rows() == [] == site.rejected()

    def test_a_task_that_found_nothing(self, site: Site, driver: Driver) -> None:
        """16: the range held only markers and gaps."""
        cycle = driver.load(step(0, 0, 5, gaps=frozenset(range(5))))
        assert [(w.rows, w.rejected, w.files) for w in cycle.written] == [(0, 0, 0)]
        assert driver.next_offset() == 5

    def test_a_tail_of_only_bad_records_advances(self, site: Site, driver: Driver) -> None:
        """22: progress of both tables moves, though no row was written."""
        driver.load(step(0, 0, 5))
        driver.load(step(0, 5, 8, bad={5, 6, 7}))
        assert driver.standing() == Standing(Progress(8, 8, TOPIC_ID), Progress(8, 8, TOPIC_ID))
        assert offsets(site.rejected()) == [5, 6, 7]

    def test_what_a_task_reports(self, driver: Driver) -> None:
        written = driver.write(uuid.uuid4().hex, step(0, 0, 10, bad={1, 2}), "run")
        assert (written.rows, written.rejected) == (8, 2)
        assert written.size > 0

    # -- rule 1

    def test_what_no_commit_names_is_invisible(self, site: Site, driver: Driver) -> None:
        driver.plan(step(0, 0, 10, bad={1}))
        assert site.rows() == [] == site.rejected()
        assert driver.standing() == Standing(None, None)

    def test_a_task_that_ran_twice_counts_once(self, site: Site, driver: Driver) -> None:
        """17: a retry or a speculative twin writes under names of its own, and one of them is committed."""
        cycle = driver.plan(step(0, 0, 10, bad={1}))
        driver.write(cycle.cycle_id, step(0, 0, 10, bad={1}), "twin")
        driver.sink.commit(cycle, nowhere)
        driver.write(cycle.cycle_id, step(0, 0, 10, bad={1}), "late twin")
        assert offsets(site.rows()) == [0, *range(2, 10)]
        assert offsets(site.rejected()) == [1]

    def test_a_task_that_died_half_way(self, site: Site, driver: Driver) -> None:
        cycle_id = uuid.uuid4().hex
        dead = driver.sink.writer(cycle_id).open()
        dead.write_rows(rows_batch(TOPIC, 0, range(5), "dead"))
        dead.write_rejected(rejected_batch(TOPIC, 0, [5], "dead"))
        failed = driver.sink.writer(cycle_id).open()
        failed.write_rows(rows_batch(TOPIC, 0, range(5), "failed"))
        failed.abort()
        failed.abort()
        driver.load(step(0, 0, 10))
        assert offsets(site.rows()) == list(range(10))
        assert site.rejected() == []
        dead.abort()

    def test_a_cycle_that_was_abandoned_leaves_nothing(self, site: Site, driver: Driver) -> None:
        cycle = driver.plan(step(0, 0, 10, bad={1}))
        driver.sink.abandon(cycle.cycle_id, cycle.written)
        driver.sink.abandon(cycle.cycle_id, cycle.written)
        assert site.rows() == [] == site.rejected()
        driver.load(step(0, 0, 10))
        assert offsets(site.rows()) == list(range(10))

    def test_abandoning_what_was_committed_after_all_takes_nothing_away(
        self, site: Site, driver: Driver
    ) -> None:
        cycle = driver.load(step(0, 0, 10, bad={1}))
        driver.sink.abandon(cycle.cycle_id, cycle.written)
        assert offsets(site.rows()) == [0, *range(2, 10)]
        assert offsets(site.rejected()) == [1]

    # -- rule 3

    def test_a_zombie_cannot_write(self, site: Site, driver: Driver) -> None:
        """2: its progress would be older than the one that is there."""
        zombie = another(site)
        late = zombie.plan(step(0, 0, 5, bad={1}), run="zombie")
        driver.load(step(0, 0, 10, bad={1}))
        with pytest.raises(ProgressConflictError):
            zombie.sink.commit(late, nowhere)
        assert offsets(site.rows()) == [0, *range(2, 10)]
        assert offsets(site.rejected()) == [1]
        assert driver.standing() == Standing(Progress(10, 10, TOPIC_ID), Progress(10, 10, TOPIC_ID))

    def test_the_same_cycle_twice_is_refused(self, site: Site, driver: Driver) -> None:
        """1: files are not registered twice."""
        cycle = driver.load(step(0, 0, 10))
        with pytest.raises(ProgressConflictError):
            driver.sink.commit(cycle, nowhere)
        assert offsets(site.rows()) == list(range(10))

    def test_of_two_drivers_that_race_one_wins(self, site: Site, driver: Driver) -> None:
        """3: two leaders survive a rebalance and both commit."""
        for start in range(0, 50, 10):
            cycles = [(d, d.plan(step(0, start, start + 10, bad={start}))) for d in (another(site), driver)]
            errors = _at_once([lambda d=d, c=c: d.sink.commit(c, nowhere) for d, c in cycles])
            assert {type(error) for error in errors} == {ProgressConflictError, type(None)}, errors
            assert driver.next_offset() == start + 10
        assert offsets(site.rows()) == [o for o in range(50) if o % 10]
        assert offsets(site.rejected()) == [0, 10, 20, 30, 40]

    def test_one_partition_in_the_way_stops_them_all(self, site: Site, driver: Driver) -> None:
        late = driver.plan(step(0, 0, 10, bad={1}), step(1, 0, 10))
        another(site).load(step(1, 0, 4))
        with pytest.raises(ProgressConflictError, match=f"{TOPIC}-1"):
            driver.sink.commit(late, nowhere)
        assert driver.standing(0) == Standing(None, None)
        assert offsets(site.rows(), 0) == [] == offsets(site.rejected(), 0)

    def test_other_partitions_do_not_get_in_the_way(self, site: Site, driver: Driver) -> None:
        first = driver.plan(step(0, 0, 10))
        second = another(site)
        second.load(step(1, 0, 10))
        driver.sink.commit(first, nowhere)
        both = [(driver, driver.plan(step(0, 10, 20))), (second, second.plan(step(1, 10, 20)))]
        errors = _at_once([lambda d=d, c=c: d.sink.commit(c, nowhere) for d, c in both])
        assert errors == [None, None]
        assert offsets(site.rows(), 0) == offsets(site.rows(), 1) == list(range(20))

    def test_expectations_are_exact(self, site: Site, driver: Driver) -> None:
        """2: the same next offset under another topic id, or in a rewind, is another standing."""
        driver.load(step(0, 0, 10))
        late = driver.plan(step(0, 10, 20))
        other = another(site)
        other.anchor(0, 10, topic_id=REMADE_ID)
        with pytest.raises(ProgressConflictError):
            driver.sink.commit(late, nowhere)
        assert offsets(site.rows()) == list(range(10))
        assert driver.rows_progress() == Progress(10, 10, REMADE_ID, 1, low_offset=10)

    def test_what_was_never_loaded_is_known(self, site: Site, driver: Driver) -> None:
        """A load that began late was rewound to before that, in cycles."""
        driver.anchor(0, 100)
        driver.load(step(0, 100, 110), step(1, 5, 7))
        assert another(site).rows_progress() == Progress(110, 110, TOPIC_ID, low_offset=100)
        driver.anchor(0, 3)
        for end in (20, 40):
            driver.load(step(0, driver.next_offset() or 0, end))
            half = Progress(end, 110, TOPIC_ID, low_offset=3, gap_end=100)
            assert another(site).standing() == Standing(half, half)
        driver.load(step(0, 40, 104))
        assert another(site).rows_progress() == Progress(104, 110, TOPIC_ID, low_offset=3)
        assert another(site).rows_progress(1) == Progress(7, 7, TOPIC_ID, low_offset=5)

    def test_expectations_of_what_was_never_loaded_are_exact(self, site: Site, driver: Driver) -> None:
        for offset in (100, 50):
            driver.anchor(0, offset)
        late = driver.plan(step(0, 50, 60))
        for offset in (40, 50):
            another(site).anchor(0, offset)
        with pytest.raises(ProgressConflictError):
            driver.sink.commit(late, nowhere)
        assert driver.rows_progress() == Progress(50, 100, TOPIC_ID, low_offset=40, gap_end=100)

    # -- lost ranges

    def test_lost_ranges_are_kept_once(self, site: Site, driver: Driver) -> None:
        gone = LostRange(TOPIC, 0, 0, 100, Loss.RETENTION, NOON)
        skipped = LostRange(TOPIC, 1, 5, 7, Loss.SKIPPED, NOON + timedelta(seconds=1))
        cycle = driver.plan(step(0, 100, 110), lost=(gone,))
        driver.sink.commit(cycle, nowhere)
        driver.load(step(0, 110, 120), lost=(gone, skipped))
        later = another(site)
        assert later.sink.lost("lake") == [gone, skipped]
        assert later.sink.lost("another group") == []
        assert offsets(site.rows()) == list(range(100, 120))

    def test_lost_ranges_of_a_recreated_topic_and_those_loaded_later_are_recorded(
        self, site: Site, driver: Driver
    ) -> None:
        """Of the same offsets, told apart by the topic's id and the reason."""
        first = LostRange(TOPIC, 0, 5, 7, Loss.SKIPPED, NOON, TOPIC_ID)
        other = replace(first, topic_id=REMADE_ID, noticed_at=NOON + timedelta(seconds=1))
        loaded = replace(first, reason=Loss.LOADED, noticed_at=NOON + timedelta(seconds=2))
        driver.load(step(0, 0, 10), lost=(first,))
        driver.load(step(0, 10, 12), lost=(other,))
        driver.load(step(0, 5, 7), lost=(loaded,))
        assert another(site).sink.lost("lake") == [first, other, loaded]


def _at_once(calls: list[object]) -> list[BaseException | None]:
    """Run all calls at the same time, each in a thread; what each raised."""
    errors: list[BaseException | None] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(number: int) -> None:
        barrier.wait(SECONDS)
        try:
            calls[number]()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
        assert not thread.is_alive()
    return errors
