"""A step of a commit: what a table's progress is after it, and whether it replaces rows."""

from __future__ import annotations

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
