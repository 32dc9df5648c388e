"""What an iteration has handed out is known exactly, though nobody counts while it is read."""

from __future__ import annotations

from itertools import islice

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.records import Records
from millstream.consumer.user.progress import Iteration
from millstream.model import OffsetAndMetadata, TimestampType, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def part(partition: TopicPartition, offsets: range, epoch: int | None = None) -> Columns:
    count = len(offsets)
    keys, values = [None] * count, [b"v"] * count
    return Columns(
        *partition, TimestampType.CREATE_TIME, epoch, offsets, [0] * count, keys, values, [()] * count
    )


def iteration() -> Iteration:
    made = Iteration()
    made.start(Records([part(T0, range(3), 7), part(T1, range(10, 12)), part(T0, range(5, 8), 8)]))
    return made


def test_the_first_of_each_partition_that_was_not_handed_out() -> None:
    expected = [
        {T0: (0, 7), T1: (10, None)},
        {T0: (1, 7), T1: (10, None)},
        {T0: (2, 7), T1: (10, None)},
        {T0: (5, 8), T1: (10, None)},
        {T0: (5, 8), T1: (11, None)},
        {T0: (5, 8)},
        {T0: (6, 8)},
        {T0: (7, 8)},
        {},
    ]
    for count, rest in enumerate(expected):
        made = iteration()
        assert len(list(islice(made.rest, count))) == count
        assert made.first_offsets() == rest, count
        assert [made.first_offset(each) for each in (T0, T1)] == [
            rest[each][0] if each in rest else None for each in (T0, T1)
        ], count
        assert bool(made) is bool(rest), count


def test_next_and_rest_are_one() -> None:
    made = iteration()
    first = next(made.rest, None)
    assert first is not None and first.offset == 0
    assert [record.offset for record in made.rest] == [1, 2, 10, 11, 5, 6, 7]
    assert next(made.rest, None) is None


def test_after_a_stop_nothing_is_left_and_the_old_rest_is_another_one() -> None:
    made = iteration()
    rest = made.rest
    next(rest)
    made.stop()
    assert made.rest is not rest
    assert not made and next(made.rest, None) is None and made.first_offsets() == {}


def test_positions_are_corrected_to_what_was_handed_out() -> None:
    made = iteration()
    next(made.rest)
    positions = {T0: OffsetAndMetadata(8, "", 8), T1: OffsetAndMetadata(9)}
    assert made.correct(positions) == {T0: OffsetAndMetadata(1, "", 7), T1: OffsetAndMetadata(9)}
