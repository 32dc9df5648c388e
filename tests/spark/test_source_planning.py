"""Planning is pure: which offsets a batch covers, what is lost, and how ranges become tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream import TopicPartition
from millstream.spark.planning import losses as lost
from millstream.spark.planning import micro_batches
from millstream.spark.planning import ranges as tasks
from millstream.spark.planning.offsets import ClusterOffsets, StreamOffset
from millstream.spark.planning.ranges import OffsetRange

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": "id-t"}

spans = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20)),
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)),
    max_size=12,
)


def seen(latest: dict[TopicPartition, int], ids: dict[str, str] = IDS, **earliest: int) -> ClusterOffsets:
    return ClusterOffsets(ids, {each: earliest.get("start", 0) for each in latest}, latest)


# -- how far a batch goes


@given(spans, st.integers(1, 10**10))
def test_a_limit_is_used_up_and_exceeded_only_for_small_partitions(
    found: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    start = {each: begin for each, (begin, _) in found.items()}
    end = {each: begin + size for each, (begin, size) in found.items()}
    limited = micro_batches.limit(start, end, most)
    least = min(most, micro_batches.available(start, end))
    assert least <= micro_batches.available(start, limited) <= least + len(end)
    assert all(start[each] <= limited[each] <= end[each] for each in end)
    assert all(limited[each] > start[each] for each in end if end[each] > start[each]), "no one starves"


def test_a_limit_is_shared_in_proportion() -> None:
    assert micro_batches.limit({T0: 0, T1: 100}, {T0: 900, T1: 200}, 100) == {T0: 90, T1: 110}


def test_a_batch_goes_to_the_end_or_to_the_target() -> None:
    known = StreamOffset({T0: 5, T1: 0}, IDS)
    settled = micro_batches.settle(known, seen({T0: 50, T1: 10}))
    assert micro_batches.advance(known, settled, {T0: 50, T1: 10}).offsets == {T0: 50, T1: 10}
    limited = micro_batches.advance(known, settled, {T0: 50, T1: 10}, target={T0: 20})
    assert limited.offsets == {T0: 20, T1: 0}, "what the target does not know came after it"


def test_what_was_read_beyond_the_target_is_not_taken_back() -> None:
    known = StreamOffset({T0: 30}, IDS)
    settled = micro_batches.settle(known, seen({T0: 50}))
    assert micro_batches.advance(known, settled, {T0: 50}, target={T0: 20}).offsets == {T0: 30}


def test_a_new_partition_starts_at_its_beginning_and_is_written_down_first() -> None:
    known = StreamOffset({T0: 5}, IDS)
    now = seen({T0: 9, T1: 7}, start=2)
    first = micro_batches.advance(known, micro_batches.settle(known, now), now.latest)
    assert first.offsets == {T0: 9, T1: 2}
    assert tasks.ranges_between(known.offsets, first.offsets) == [OffsetRange("t", 0, 5, 9)]
    second = micro_batches.advance(first, micro_batches.settle(first, now), now.latest)
    assert tasks.ranges_between(first.offsets, second.offsets) == [OffsetRange("t", 1, 2, 7)]


# -- what is lost


def test_a_topic_without_partitions_is_in_doubt_and_not_new() -> None:
    known = StreamOffset({T0: 5, T1: 6}, IDS)
    assert lost.vanished(known, IDS, []) == {"t"}
    assert lost.vanished(known, {}, []) == {"t"}
    assert lost.vanished(known, IDS, [T0]) == {"t"}
    assert lost.vanished(known, IDS, [T0, T1, U0]) == set()


def test_a_topic_of_another_id_was_made_anew() -> None:
    known = StreamOffset({T0: 5}, IDS)
    assert lost.recreated(known, {"t": "other"}) == {"t"}
    assert lost.recreated(known, {}) == set(), "gone is not the same"
    assert lost.recreated(StreamOffset({T0: 5}), {"t": "other"}) == set(), "an old checkpoint has no ids"


def test_losses_between_batches_are_told_apart() -> None:
    known = StreamOffset({T0: 50, U0: 9}, {"t": "id-t", "u": "id-u"})
    anew = lost.losses_of_topics(known, seen({T0: 90, U0: 9}, {"t": "other", "u": "id-u"}))
    assert [(loss.lost.topic, "recreated" in loss.reason) for loss in anew] == [("t", True)]
    gone = lost.losses_of_topics(known, seen({T0: 90}, {"t": "id-t"}))
    assert [(loss.lost.topic, "no longer exists" in loss.reason) for loss in gone] == [("u", True)]
    cut = lost.losses_of_topics(known, seen({T0: 40, U0: 9}, {"t": "id-t", "u": "id-u"}))
    assert [loss.lost for loss in cut] == [OffsetRange("t", 0, 40, 50)]
    assert lost.losses_of_topics(known, seen({T0: 50, U0: 9}, {"t": "id-t", "u": "id-u"})) == []


def test_after_a_loss_the_stream_goes_on_with_what_is_there() -> None:
    known = StreamOffset({T0: 50, U0: 9}, {"t": "id-t", "u": "id-u"})
    anew = micro_batches.settle(known, seen({T0: 90}, {"t": "other"}, start=3))
    assert anew == StreamOffset({T0: 3}, {"t": "other"})
    kept = micro_batches.settle(known, seen({T0: 90}, {"t": "id-t"}), {"u"})
    assert kept == StreamOffset({T0: 50, U0: 9}, {"t": "id-t", "u": "id-u"}), "it may come back"
    assert micro_batches.advance(known, kept, {T0: 90}).offsets == {T0: 90, U0: 9}
    assert micro_batches.settle(known, seen({}, {})) == known, "nothing at all is no reason to start again"
    cut = micro_batches.settle(known, seen({T0: 40}, {"t": "id-t"}))
    assert cut.offsets == {T0: 40}
    end = micro_batches.advance(known, cut, {T0: 45})
    assert tasks.ranges_between(known.offsets, end.offsets) == [], "nothing is read twice"


def test_retention_takes_the_beginning_of_a_range() -> None:
    ranges = [OffsetRange("t", 0, 5, 50), OffsetRange("t", 1, 0, 10), OffsetRange("u", 0, 7, 9)]
    losses = lost.losses_of_ranges(ranges, {T0: 20, T1: 0, U0: 100})
    assert [loss.lost for loss in losses] == [OffsetRange("t", 0, 5, 20), OffsetRange("u", 0, 7, 9)]
    assert lost.without(ranges, losses) == [OffsetRange("t", 0, 20, 50), OffsetRange("t", 1, 0, 10)]


# -- tasks


def parts_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", number, 1000, 1000 + size) for number, size in enumerate(sizes)]


@given(
    st.lists(st.integers(0, 10**7), max_size=10),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(10**5, 10**7)),
)
def test_splitting_loses_nothing_and_repeats_nothing(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    ranges = parts_of(sizes)
    pieces = tasks.split(ranges, min_partitions=least, max_records=most)
    for part in ranges:
        own = [piece for piece in pieces if piece.partition == part.partition]
        edges = [part.start, *(piece.end for piece in own)]
        assert [piece.start for piece in own] == edges[:-1] and edges[-1] == part.end
    assert all(0 < piece.offsets <= (most or 10**7) for piece in pieces)
    assert len(pieces) >= min(least or 0, sum(sizes))


def test_one_range_is_one_task_unless_told_otherwise() -> None:
    assert tasks.split(parts_of([10**9, 1, 0])) == parts_of([10**9, 1])


def test_skewed_partitions_are_cut_and_small_ones_left_whole() -> None:
    pieces = tasks.split(parts_of([800, 100, 1]), min_partitions=10)
    counts = [sum(piece.partition == number for piece in pieces) for number in range(3)]
    assert counts == [8, 1, 1] or (sum(counts) >= 10 and counts[2] == 1 and counts[0] > counts[1])


def test_at_most_so_many_records_in_a_task() -> None:
    pieces = tasks.split(parts_of([100, 30]), max_records=40)
    assert [piece.offsets for piece in pieces] == [33, 33, 34, 30]
