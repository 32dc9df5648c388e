"""How much a cycle loads, and how it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import TopicPartition
from millstream.spark.load.decisions.cycles import (
    Backlog,
    Bounds,
    Throughput,
    budget,
    merged,
    pieces_of,
    ranges_of,
    shares_of,
    within_bytes,
)
from millstream.spark.planning.ranges import OffsetRange


def backlog(partition: int, start: int, end: int) -> Backlog:
    return Backlog(TopicPartition("t", partition), start, end)


def part(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange("t", partition, start, end)


backlogs = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5_000_000)), max_size=20).map(
    lambda pairs: [backlog(place, start, start + size) for place, (start, size) in enumerate(pairs)]
)


@given(backlogs, st.integers(1, 10_000_000))
def test_every_partition_that_waits_gets_a_share(waiting: list[Backlog], most: int) -> None:
    found = {one.partition: one for one in ranges_of(waiting, most)}
    assert set(found) == {one.partition.partition for one in waiting if one.offsets}
    for one in waiting:
        if one.offsets:
            mine = found[one.partition.partition]
            assert one.start == mine.start < mine.end <= one.end
    total = sum(one.offsets for one in found.values())
    assert total <= max(most, len(found))
    if sum(one.offsets for one in waiting) <= most:
        assert total == sum(one.offsets for one in waiting)


def test_what_one_does_not_need_goes_to_the_others() -> None:
    found = ranges_of([backlog(0, 0, 1000), backlog(1, 50, 60), backlog(2, 0, 1000)], 110)
    assert found == [part(0, 0, 50), part(1, 50, 60), part(2, 0, 50)]


@given(backlogs, st.integers(1, 64))
def test_pieces_are_the_ranges_cut(waiting: list[Backlog], cores: int) -> None:
    ranges = ranges_of(waiting, 10_000_000)
    pieces = pieces_of(ranges, cores)
    assert merged(pieces) == merged(ranges)
    assert sum(one.offsets for one in pieces) == sum(one.offsets for one in ranges)
    assert all(one.offsets <= 2_500_000 for one in pieces)
    assert pieces == sorted(pieces, key=lambda piece: -piece.offsets)


def test_skew_is_split_and_small_ranges_are_not() -> None:
    pieces = pieces_of([part(0, 0, 1_000_000), part(1, 0, 10)], 4)
    assert [one.offsets for one in pieces] == [250_000] * 4 + [10]
    assert len(pieces_of([part(0, 0, 50_000)], 64)) == 1


def test_one_large_partition_keeps_all_cores_busy() -> None:
    assert len(pieces_of([part(0, 0, 12_000_000)], 2)) == 6
    assert len(pieces_of([part(0, 0, 5_000_000)], 2)) == 2


@given(backlogs, st.integers(1, 64))
def test_every_piece_is_in_one_share(waiting: list[Backlog], cores: int) -> None:
    pieces = pieces_of(ranges_of(waiting, 10_000_000), cores)
    shares = shares_of(pieces, cores)
    assert sorted(place for share in shares for place in share) == list(range(len(pieces)))
    assert all(shares), "no task has nothing to do"
    loads = [sum(pieces[place].offsets for place in share) for share in shares]
    largest = max((one.offsets for one in pieces), default=0)
    assert max(loads, default=0) - min(loads, default=0) <= largest, "none waits long for another"


def test_many_small_partitions_share_few_tasks() -> None:
    small = [part(number, 0, 15_625) for number in range(64)]
    assert [len(share) for share in shares_of(small, 2)] == [32, 32]
    assert [len(share) for share in shares_of(small, 64)] == [1] * 64
    assert shares_of([], 2) == []


def test_many_cores_do_not_make_many_files_of_little_work() -> None:
    tiny = [part(number, 0, 20) for number in range(64)]
    assert [len(share) for share in shares_of(tiny, 64)] == [16] * 4
    some = [part(number, 0, 1_000) for number in range(64)]
    assert len(shares_of(some, 64)) == 7


@pytest.mark.parametrize(
    ("bounds", "pace", "expected"),
    [
        (Bounds(), Throughput(), 10_000_000),
        (Bounds(max_records=7), Throughput(), 7),
        (Bounds(max_seconds=2), Throughput(), 200_000),
        (Bounds(max_seconds=2), Throughput(records_per_second=1000), 2000),
        (Bounds(max_records=50, max_seconds=2), Throughput(records_per_second=1000), 50),
    ],
)
def test_the_tightest_bound_counts(bounds: Bounds, pace: Throughput, expected: int) -> None:
    assert budget(bounds, pace, cores=2) == expected


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
MB = 1_000_000


@pytest.mark.parametrize(
    ("bounds", "pace", "sizes", "expected"),
    [
        (Bounds(), Throughput(), {P0: 100.0, P1: 100.0}, [1000, 3000]),
        (Bounds(), Throughput(), {}, [1000, 3000]),
        (Bounds(), Throughput(), {P0: 1.0, P1: 3e6}, [238, 715]),  # 2 GiB for two cores
        (Bounds(max_records=4000), Throughput(), {P0: 3e6, P1: 3e6}, [1000, 3000]),  # the user's word
        (Bounds(max_bytes=MB), Throughput(), {P0: 100.0, P1: 100.0}, [1000, 3000]),
        (Bounds(max_bytes=MB), Throughput(), {P0: 1000.0, P1: 1000.0}, [250, 750]),
        (Bounds(max_bytes=MB), Throughput(), {P0: 1000.0, P1: 3000.0}, [100, 300]),
        (Bounds(max_bytes=MB), Throughput(), {}, [244, 732]),  # nobody knows: a KiB each
        (Bounds(max_bytes=MB), Throughput(bytes_per_record=1000), {}, [250, 750]),
        (Bounds(max_bytes=MB), Throughput(bytes_per_record=1000), {P1: 1.0}, [997, 2991]),
        (Bounds(max_bytes=1), Throughput(), {P0: 1000.0, P1: 1000.0}, [1, 1]),
    ],
)
def test_ranges_are_cut_to_their_bytes(
    bounds: Bounds, pace: Throughput, sizes: dict[TopicPartition, float], expected: list[int]
) -> None:
    ranges = [part(0, 10, 1010), part(1, 0, 3000)]
    found = within_bytes(ranges, bounds, pace, 2, sizes)
    assert [one.offsets for one in found] == expected
    assert [one.start for one in found] == [10, 0]


def test_the_pace_is_learned() -> None:
    pace = Throughput().after(100_000, 400_000, 2.0)
    assert pace == Throughput(4.0, 50_000)
    assert pace.after(0, 0, 5.0) == pace
    assert pace.after(10, 40, 1.0).records_per_second == 50_000, "ten records say nothing about the speed"


def test_ranges_are_merged() -> None:
    assert merged([part(0, 5, 9), part(1, 0, 1), part(0, 0, 5), part(0, 11, 12)]) == [
        part(0, 0, 9),
        part(0, 11, 12),
        part(1, 0, 1),
    ]
    assert merged([part(0, 0, 10), part(0, 4, 6)]) == [part(0, 0, 10)]
