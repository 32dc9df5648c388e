"""A step of a commit: what a table's progress is after it, and whether it replaces rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.spark.sinks.base import Advance, Progress, Standing, label_column


def advance(start: int, end: int, topic_id: str = "a") -> Advance:
    return Advance("orders", 0, topic_id, start, end, Standing(None, None))


def test_the_next_range() -> None:
    assert advance(0, 5).after(None) == Progress(5, 5, "a")
    assert advance(5, 9).after(Progress(5, 5, "a")) == Progress(9, 9, "a")
    assert not advance(5, 9).replaces(Progress(5, 5, "a")) and not advance(0, 5).replaces(None)


def test_a_rewind() -> None:
    before = Progress(3, 8, "a", 2)
    assert advance(3, 6).replaces(before) and advance(3, 6).after(before) == Progress(6, 8, "a", 2)
    assert not advance(8, 9).replaces(Progress(8, 8, "a", 2))


def test_what_a_table_begins_with() -> None:
    late = advance(100, 110).after(None)
    assert late == Progress(110, 110, "a", low_offset=100)
    assert advance(110, 120).after(late) == Progress(120, 120, "a", low_offset=100)
    assert advance(100, 105).after(late) == Progress(105, 110, "a", low_offset=100), "a rewind within it"
    assert advance(7, 9, "b").after(late) == Progress(9, 9, "b", 1, low_offset=7)


def test_a_rewind_to_before_the_beginning_leaves_a_gap_until_it_is_closed() -> None:
    anchored = advance(10, 10).after(Progress(110, 110, "a", low_offset=100))
    assert anchored == Progress(10, 110, "a", low_offset=10, gap_end=100)
    assert anchored.has_gap
    half = advance(10, 40).after(anchored)
    assert half == Progress(40, 110, "a", low_offset=10, gap_end=100)
    for end in (100, 104, 130):
        closed = advance(40, end).after(half)
        assert closed == Progress(end, max(end, 110), "a", low_offset=10) and not closed.has_gap
    assert advance(20, 30).after(closed).gap_end == 0, "it stays closed"


def test_rewinds_from_within_a_gap() -> None:
    half = Progress(40, 110, "a", low_offset=10, gap_end=100)
    assert advance(20, 20).after(half) == Progress(20, 110, "a", low_offset=10, gap_end=100)
    assert advance(5, 5).after(half) == Progress(5, 110, "a", low_offset=5, gap_end=100)


def test_what_is_recorded_as_lost_is_not_missed_again() -> None:
    first = replace(advance(50, 50), lost_from=10)
    assert first.after(None) == Progress(50, 50, "a", low_offset=10)
    late = Progress(110, 110, "a", low_offset=100)
    assert first.after(late) == Progress(50, 110, "a", low_offset=10, gap_end=100)
    assert replace(advance(105, 105), lost_from=10).after(late) == Progress(105, 110, "a", low_offset=10)
    assert replace(advance(130, 130), lost_from=110).after(late) == Progress(130, 130, "a", low_offset=100)


def test_what_was_never_loaded() -> None:
    half = Progress(40, 110, "a", low_offset=10, gap_end=100)
    assert half.never_loaded(0, 200) == [(0, 10), (40, 100), (110, 200)]
    assert half.never_loaded(20, 30) == half.never_loaded(100, 110) == half.never_loaded(60, 60) == []
    assert half.never_loaded(50, 60) == [(50, 60)]
    assert Progress(40, 110, "a").never_loaded(0, 111) == [(110, 111)]


def test_a_topic_made_anew_replaces_nothing_and_is_counted() -> None:
    before = Progress(3, 8, "a", 1)
    assert not advance(0, 4, "b").replaces(before)
    after = advance(0, 4, "b").after(before)
    assert after == Progress(4, 4, "b", 2)
    assert (Progress(3, 8, "a").label, before.label, after.label) == (None, "a", "b")


def test_a_broker_that_tells_no_id_proves_nothing() -> None:
    """Also when it is replaced by one that does, in the middle of a rewind."""
    old, new = Progress(3, 8, ""), Progress(3, 8, "a")
    assert advance(3, 5, "a").replaces(old) and advance(3, 5, "a").after(old) == Progress(5, 8, "a")
    assert advance(3, 5, "").replaces(new) and advance(3, 5, "").after(new) == Progress(5, 8, "a")


def test_the_column_of_labels() -> None:
    assert label_column(("_topic", "_partition", "_offset")) == "_topic_id"
    assert label_column(("topic", "partition", "offset")) == "topic_id"
