"""Where a partition starts: the tables of ``decisions``, row by row, and the lessons that are decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import (
    STARTING,
    Author,
    CommitMetadata,
    author_of,
    read_commit_metadata,
)
from millstream.spark.load.decisions.starts import (
    LostOffsets,
    Refusal,
    Rules,
    Situation,
    Start,
    decide,
    may_lack_progress,
    progress_of,
)
from millstream.spark.sinks.base import Loss, Progress, Standing

SINK = "delta:lake/orders"
RULES = Rules("g", SINK)
LATEST = replace(RULES, starting="latest")
ACCEPTING = replace(RULES, fail_on_data_loss=False)
APPENDING = replace(RULES, on_recreated="append")
WHERE = TopicPartition("orders", 0)
NOTHING = Standing(None, None)


def at(rows: int, rejected: int | None = None, high: int | None = None, topic_id: str = "id1") -> Standing:
    other = rows if rejected is None else rejected
    high = max(rows, other) if high is None else high
    return Standing(Progress(rows, high, topic_id), Progress(other, high, topic_id))


def ours(offset: int, cycle_id: str = "c1", sink: str = SINK) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, str(CommitMetadata(cycle_id, sink)))


def moved(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, RESET_METADATA)


def strangers(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "")


def situation(
    standing: Standing = NOTHING,
    committed: OffsetAndMetadata | None = None,
    log: tuple[int, int] = (0, 1000),
    topic_id: str = "id1",
    came_later: bool = False,
) -> Situation:
    return Situation(WHERE, standing, committed, topic_id, *log, came_later)


def started(found: Start | Refusal) -> Start:
    assert isinstance(found, Start), found
    return found


def refused(found: Start | Refusal) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


# ---- P and G: one test for each row of the table


@pytest.mark.parametrize("committed", [None, ours(100), ours(70), ours(130), ours(100, sink="topic:x")])
def test_the_sink_is_the_truth(committed: OffsetAndMetadata | None) -> None:
    found = started(decide(situation(at(100), committed), RULES))
    assert (found.offset, found.anchors, found.lost, found.note) == (100, False, (), "")
    assert found.repairs_group is (committed != ours(100))


@pytest.mark.parametrize("committed", [moved(100), strangers(100)])
def test_an_offset_moved_to_where_the_sink_stands_changes_nothing(committed: OffsetAndMetadata) -> None:
    found = started(decide(situation(at(100), committed), RULES))
    assert (found.offset, found.anchors, found.repairs_group) == (100, False, True)


@pytest.mark.parametrize("committed", [moved(40), strangers(40)])
def test_a_rewind_is_followed(committed: OffsetAndMetadata) -> None:
    found = started(decide(situation(at(100), committed), RULES))
    assert (found.offset, found.anchors, found.repairs_group, found.lost) == (40, True, True, ())
    assert "goes back from 100 to 40" in found.note


@pytest.mark.parametrize(
    ("committed", "rules"), [(moved(140), RULES), (moved(140), ACCEPTING), (strangers(140), ACCEPTING)]
)
def test_a_skip_is_followed_and_recorded(committed: OffsetAndMetadata, rules: Rules) -> None:
    found = started(decide(situation(at(100), committed), rules))
    assert (found.offset, found.anchors, found.repairs_group) == (140, True, True)
    assert found.lost == (LostOffsets(100, 140, Loss.SKIPPED),)
    assert "skips from 100 to 140" in found.note


def test_a_strangers_skip_is_refused_where_it_loses_records() -> None:
    found = refused(decide(situation(at(50, high=100), strangers(140)), RULES))
    assert found.lost == (LostOffsets(100, 140, Loss.SKIPPED),)
    assert "orders-0 [100, 140) would be skipped" in found.reason and not found.passing
    assert "'millstream group reset g'" in found.reason and "--accept-data-loss" in found.reason
    harmless = started(decide(situation(at(50, high=100), strangers(80)), RULES))
    assert (harmless.offset, harmless.lost) == (80, ())


def test_a_skip_over_what_a_rewind_left_in_the_table_loses_nothing() -> None:
    found = started(decide(situation(at(50, high=100), moved(80)), RULES))
    assert (found.offset, found.lost) == (80, ())
    found = started(decide(situation(at(50, high=100), moved(120)), RULES))
    assert (found.offset, found.lost) == (120, (LostOffsets(100, 120, Loss.SKIPPED),))


def test_without_progress_a_reset_is_followed() -> None:
    found = started(decide(situation(committed=moved(40)), LATEST))
    assert (found.offset, found.anchors, found.repairs_group, found.group_first) == (40, True, True, False)


def test_without_progress_a_start_that_was_about_to_happen_happens() -> None:
    found = started(decide(situation(committed=ours(40, STARTING)), LATEST))
    assert (found.offset, found.anchors) == (40, True)


def test_a_group_has_one_sink() -> None:
    found = refused(decide(situation(committed=ours(40, sink="delta:lake/other")), RULES))
    assert "delta:lake/other" in found.reason and "choose another group" in found.reason
    assert not found.passing


@pytest.mark.parametrize("committed", [None, strangers(40), ours(40)])
def test_a_topic_is_loaded_into_a_table_by_one_group(committed: OffsetAndMetadata | None) -> None:
    beside = replace(situation(committed=committed), others=frozenset({"h"}))
    found = refused(decide(beside, RULES))
    assert found.of_topic and not found.passing
    assert "load with group h, or into another table" in found.reason
    assert "'millstream group reset g --to OFFSET --topic orders:PARTITION'" in found.reason
    started(decide(replace(beside, came_later=True), RULES))
    started(decide(replace(beside, standing=at(100)), RULES))


@pytest.mark.parametrize("committed", [moved(40), ours(40, STARTING)])
def test_a_group_that_was_moved_begins_beside_another(committed: OffsetAndMetadata) -> None:
    """That is how a group is given another name."""
    beside = replace(situation(committed=committed), others=frozenset({"h"}))
    assert started(decide(beside, RULES)).offset == 40


@pytest.mark.parametrize(("rules", "offset"), [(RULES, 5), (LATEST, 1000)])
def test_without_any_memory_the_user_chooses(rules: Rules, offset: int) -> None:
    found = started(decide(situation(log=(5, 1000)), rules))
    assert (found.offset, found.anchors, found.group_first, found.note) == (offset, True, False, "")


@pytest.mark.parametrize(("stable", "offset"), [(990, 990), (1003, 1000)])
def test_latest_is_the_stable_end_and_never_past_the_end(stable: int, offset: int) -> None:
    """The two are asked for one after the other, while records come."""
    found = started(decide(replace(situation(log=(5, 1000)), stable_end=stable), LATEST))
    assert found.offset == offset


# ---- two tables


def test_the_slower_table_decides() -> None:
    assert progress_of(NOTHING) is None
    assert progress_of(at(60, 80)) == Progress(60, 80, "id1")
    assert progress_of(at(80, 60)) == Progress(60, 80, "id1")
    assert progress_of(Standing(Progress(7, 7, "id1"), None)) == Progress(7, 7, "id1")


def test_what_only_the_rejected_rows_have_passed_was_never_loaded() -> None:
    """A commit stopped between the two: good records of [20, 60) are nowhere."""
    stopped = Standing(Progress(20, 20, "id1"), Progress(60, 60, "id1"))
    found = started(decide(situation(stopped, moved(50)), RULES))
    assert found.lost == (LostOffsets(20, 50, Loss.SKIPPED),)
    gone = refused(decide(situation(stopped, ours(20), log=(50, 1000)), RULES))
    assert gone.lost == (LostOffsets(20, 50, Loss.RETENTION),)


def test_rejected_rows_alone_are_no_progress() -> None:
    alone = Standing(None, Progress(100, 100, "id1"))
    found = started(decide(situation(alone, ours(100)), RULES))
    assert (found.offset, found.anchors) == (0, True)
    assert "starts over" in found.note


# ---- the log


def test_loss_is_an_error_that_names_the_range_and_the_way_out() -> None:
    found = refused(decide(situation(at(100), ours(100), log=(150, 1000)), RULES))
    assert found.lost == (LostOffsets(100, 150, Loss.RETENTION),)
    assert "orders-0 [100, 150)" in found.reason and "--accept-data-loss" in found.reason
    assert not found.passing


def test_loss_that_is_accepted_is_recorded() -> None:
    found = started(decide(situation(at(100), ours(100), log=(150, 1000)), ACCEPTING))
    assert (found.offset, found.anchors, found.repairs_group) == (150, True, True)
    assert found.lost == (LostOffsets(100, 150, Loss.RETENTION),)
    assert found.note


def test_a_skip_that_retention_passed_has_two_reasons() -> None:
    found = started(decide(situation(at(100), moved(120), log=(150, 1000)), ACCEPTING))
    assert found.offset == 150
    assert found.lost == (LostOffsets(100, 120, Loss.SKIPPED), LostOffsets(120, 150, Loss.RETENTION))


def test_a_rewind_before_the_log_loses_nothing_that_is_in_the_table() -> None:
    found = started(decide(situation(at(200), moved(40), log=(150, 1000)), RULES))
    assert (found.offset, found.anchors, found.lost) == (150, True, ())


def test_a_rewind_under_way_that_retention_passes_loses_only_what_was_never_loaded() -> None:
    found = started(decide(situation(at(50, high=100), ours(50), log=(150, 1000)), ACCEPTING))
    assert found.lost == (LostOffsets(100, 150, Loss.RETENTION),)


def test_a_reset_that_retention_passed_is_a_loss() -> None:
    assert refused(decide(situation(committed=moved(10), log=(50, 1000)), RULES)).lost


# ---- a load that began late, at 100, was rewound to 10 and has come to 20 of that; its table goes to 110

LATE = Progress(110, 110, "id1", low_offset=100)
HALF = Progress(20, 110, "id1", low_offset=10, gap_end=100)


def late(progress: Progress = HALF) -> Standing:
    return Standing(progress, progress)


@pytest.mark.parametrize(
    ("there", "lost"),
    [
        (15, []),
        (60, [(20, 60)]),
        (100, [(20, 100)]),
        (105, [(20, 100)]),
        (130, [(20, 100), (110, 130)]),
    ],
)
def test_what_a_late_start_left_out_is_lost_where_it_is_passed(
    there: int, lost: list[tuple[int, int]]
) -> None:
    def of(reason: Loss) -> tuple[LostOffsets, ...]:
        return tuple(LostOffsets(*each, reason) for each in lost)

    skip = started(decide(situation(late(), moved(there)), RULES))
    assert (skip.offset, skip.lost) == (there, of(Loss.SKIPPED))
    cut = situation(late(), ours(20), log=(there, 1000))
    accepted = started(decide(cut, ACCEPTING))
    assert (accepted.offset, accepted.lost) == (max(there, 20), of(Loss.RETENTION))
    for refusable in (cut, situation(late(), strangers(there))):
        found = decide(refusable, RULES)
        assert isinstance(found, Refusal) is bool(lost)
        if isinstance(found, Refusal):
            named = " and ".join(f"[{start}, {end})" for start, end in lost)
            assert f"orders-0 {named} w" in found.reason
            assert [(each.start, each.end) for each in found.lost] == lost


def test_a_strangers_skip_of_two_ranges_says_how_to_load_and_how_to_confirm() -> None:
    found = refused(decide(situation(late(), strangers(130)), RULES))
    assert "[20, 100) and [110, 130) would be skipped" in found.reason
    assert "has committed 130" in found.reason and "'millstream group reset g' to 130" in found.reason
    assert "reset the group to 20" in found.reason


def test_a_rewind_to_before_the_first_start_that_retention_passed_is_a_loss() -> None:
    cut = situation(late(LATE), moved(10), log=(60, 1000))
    assert refused(decide(cut, RULES)).lost == (LostOffsets(10, 60, Loss.RETENTION),)
    within = started(decide(situation(late(LATE), moved(101), log=(105, 1000)), RULES))
    assert (within.offset, within.lost) == (105, ())


def test_what_was_ever_loaded_is_what_the_rows_say() -> None:
    """Whichever table is the slower one."""
    assert progress_of(Standing(HALF, replace(HALF, next_offset=60))) == HALF
    assert progress_of(Standing(replace(HALF, next_offset=60), Progress(20, 20, "id1"))) == HALF


def test_a_log_shorter_than_the_table_is_an_error_that_may_pass() -> None:
    found = refused(decide(situation(at(100), ours(100), log=(0, 40)), ACCEPTING))
    assert found.passing and "ends at 40" in found.reason and "group reset" in found.reason


def test_a_reset_is_the_way_out_of_a_log_that_was_cut() -> None:
    assert started(decide(situation(at(100), moved(40), log=(0, 40)), RULES)).offset == 40


def test_the_end_of_the_log_is_a_place_to_stand() -> None:
    assert started(decide(situation(at(40), ours(40), log=(40, 40)), RULES)).offset == 40


# ---- lessons that are decisions, by their numbers


def test_lesson_1_progress_never_moves_backwards_by_itself() -> None:
    """The driver died between the sink's commit and the group's: the older group offset is not followed."""
    found = started(decide(situation(at(100), ours(40)), RULES))
    assert (found.offset, found.repairs_group, found.anchors) == (100, True, False)


def test_lesson_2_an_older_progress_is_never_reset_to_latest() -> None:
    assert isinstance(decide(situation(at(10), ours(10), log=(500, 1000)), LATEST), Refusal)


def test_lesson_5_a_topic_made_anew_is_noticed() -> None:
    found = refused(decide(situation(at(100), ours(100), topic_id="id2"), RULES))
    assert "recreated" in found.reason and "--on-recreated append" in found.reason


def test_lesson_5_a_topic_made_anew_may_be_added() -> None:
    found = started(decide(situation(at(100), ours(100), log=(3, 9), topic_id="id2"), APPENDING))
    assert (found.offset, found.anchors, found.repairs_group, found.lost) == (3, True, True, ())
    stale = Standing(Progress(100, 100, "id1"), Progress(3, 3, "id2"))
    assert started(decide(situation(stale, ours(3), log=(3, 9), topic_id="id2"), APPENDING)).offset == 3
    assert started(decide(situation(at(100), moved(5), log=(3, 9), topic_id="id2"), APPENDING)).offset == 5


@pytest.mark.parametrize(("stored", "now"), [("id1", ""), ("", "id1")])
def test_lesson_5_a_broker_without_topic_ids_proves_nothing(stored: str, now: str) -> None:
    found = decide(situation(at(100, topic_id=stored), ours(100), topic_id=now), RULES)
    assert started(found).offset == 100


def test_lesson_9_a_table_that_was_rolled_back_is_loaded_again_from_there() -> None:
    found = started(decide(situation(at(30), ours(100)), RULES))
    assert (found.offset, found.repairs_group, found.lost) == (30, True, ())


def test_lesson_9_a_table_that_was_deleted_is_loaded_from_the_beginning() -> None:
    found = started(decide(situation(NOTHING, ours(100), log=(7, 1000)), LATEST))
    assert (found.offset, found.anchors) == (7, True)
    assert "deleted or emptied" in found.note


@pytest.mark.parametrize(("committed", "start"), [(ours(100), 7), (moved(50), 50)])
def test_lesson_9_progress_that_was_deleted_while_its_rows_stay(
    committed: OffsetAndMetadata, start: int
) -> None:
    """The rows from the start on would be there twice."""
    emptied = situation(NOTHING, committed, log=(7, 1000))
    assert may_lack_progress(emptied, RULES)
    found = refused(decide(replace(emptied, last_row=120), RULES))
    assert f"loading from {start} would add them a second time: delete the rows as well" in found.reason
    assert "--to 121 --topic orders:0" in found.reason
    behind = situation(NOTHING, moved(121), log=(7, 1000))
    assert started(decide(replace(behind, last_row=120), RULES)).offset == 121


def test_rows_are_looked_for_only_where_progress_may_be_missing() -> None:
    assert not may_lack_progress(situation(at(100), ours(100)), RULES)
    assert not may_lack_progress(situation(NOTHING, None), RULES)
    assert not may_lack_progress(situation(NOTHING, strangers(5)), RULES)
    shared = replace(situation(NOTHING, moved(5)), others=frozenset({"first"}))
    assert not may_lack_progress(shared, RULES)


def test_a_first_start_wants_the_topic_alone() -> None:
    """Another group may begin in the same moment, and be planned before this one's first commit."""
    assert started(decide(situation(NOTHING, None), RULES)).alone
    assert started(decide(situation(NOTHING, strangers(5)), RULES)).alone
    assert not started(decide(situation(NOTHING, moved(5)), RULES)).alone
    assert not started(decide(replace(situation(NOTHING, None), came_later=True), RULES)).alone
    assert not started(decide(situation(at(100), ours(100)), RULES)).alone


def test_lesson_11_one_offset_that_expired_moves_nothing() -> None:
    others = [decide(situation(at(100), ours(100)), LATEST) for _ in range(3)]
    expired = started(decide(situation(at(100), None), LATEST))
    assert (expired.offset, expired.repairs_group) == (100, True)
    assert all(started(other).offset == 100 for other in others)


@pytest.mark.parametrize(("rules", "offset"), [(RULES, 0), (LATEST, 1000)])
def test_lesson_12_a_stale_group_offset_is_not_trusted(rules: Rules, offset: int) -> None:
    """It is replaced before the sink moves: with progress in the sink it would look like a wish."""
    found = started(decide(situation(NOTHING, strangers(600)), rules))
    assert (found.offset, found.group_first, found.lost) == (offset, True, ())
    assert "not trusted" in found.note


def test_lesson_12_a_crash_after_the_groups_offset_was_replaced_changes_nothing() -> None:
    first = started(decide(situation(NOTHING, strangers(600)), LATEST))
    again = decide(situation(NOTHING, ours(first.offset, STARTING), log=(0, 2000)), LATEST)
    assert started(again).offset == first.offset


def test_lesson_13_a_partition_that_came_later_starts_at_its_beginning() -> None:
    found = started(decide(situation(NOTHING, None, log=(2, 50), came_later=True), LATEST))
    assert (found.offset, found.anchors) == (2, True)


def test_lesson_13_an_idle_partition_is_remembered_at_its_end() -> None:
    first = started(decide(situation(log=(0, 0)), LATEST))
    assert (first.offset, first.anchors) == (0, True)
    later = decide(situation(at(0), None, log=(0, 77)), LATEST)
    assert started(later).offset == 0


def test_lesson_15_an_end_that_goes_backwards_resets_nothing() -> None:
    assert refused(decide(situation(at(100), ours(100), log=(0, 0)), LATEST)).passing


def test_lesson_19_a_log_that_starts_above_zero_is_read_from_its_start() -> None:
    assert started(decide(situation(log=(500, 501)), RULES)).offset == 500


def test_lesson_20_nothing_stored_is_never_a_reason_to_skip() -> None:
    assert started(decide(situation(NOTHING, None), RULES)).offset == 0


def test_lesson_21_a_start_outside_the_log_never_passes_in_silence() -> None:
    for log in ((150, 1000), (0, 40)):
        assert isinstance(decide(situation(at(100), ours(100), log=log), RULES), Refusal)


# ---- notes in the group


@pytest.mark.parametrize(
    ("committed", "author"),
    [
        (None, Author.NO_ONE),
        (ours(1), Author.THIS_LOAD),
        (ours(1, STARTING), Author.THIS_LOAD_STARTING),
        (OffsetAndMetadata(1, str(CommitMetadata("c", SINK, read_committed=True))), Author.THIS_LOAD),
        (
            OffsetAndMetadata(1, str(CommitMetadata(STARTING, SINK, read_committed=True))),
            Author.THIS_LOAD_STARTING,
        ),
        (
            OffsetAndMetadata(1, str(CommitMetadata("c", "delta:other", read_committed=True))),
            Author.OTHER_LOAD,
        ),
        (ours(1, sink="postgresql://h/d?table=t"), Author.OTHER_LOAD),
        (moved(1), Author.RESET),
        (strangers(1), Author.STRANGER),
        (OffsetAndMetadata(1, "millstream-load"), Author.STRANGER),
        (OffsetAndMetadata(1, "someone's note: a:b"), Author.STRANGER),
    ],
)
def test_who_committed(committed: OffsetAndMetadata | None, author: Author) -> None:
    assert author_of(committed, SINK) is author


def test_a_long_name_is_cut_and_still_known() -> None:
    sink = "delta:" + "ü" * 5000
    mark = str(CommitMetadata("c1", sink))
    assert len(mark.encode()) <= 1024
    assert author_of(OffsetAndMetadata(1, mark), sink) is Author.THIS_LOAD
    assert author_of(OffsetAndMetadata(1, mark), "delta:x") is Author.OTHER_LOAD


def test_a_sink_may_have_colons_in_its_name() -> None:
    assert read_commit_metadata(str(CommitMetadata("c1", "postgresql://h:5432/d"))) == CommitMetadata(
        "c1", "postgresql://h:5432/d"
    )


@pytest.mark.parametrize("read_committed", [False, True])
def test_a_note_says_whether_only_what_is_committed_is_read(read_committed: bool) -> None:
    mark = CommitMetadata("c1", "delta:x", read_committed)
    assert read_commit_metadata(str(mark)) == mark
    assert str(CommitMetadata("c1", "delta:x")) == "millstream-load:c1:delta:x", "as ever"
