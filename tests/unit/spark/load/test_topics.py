"""Topics are looked at with patience: what vanishes for a moment has not vanished."""

from __future__ import annotations

import pytest

from millstream.errors import UnknownTopicOrPartitionError
from millstream.model import TopicPartition
from millstream.spark.load.engine.topics import LoadedTopics, LogBounds
from tests.unit.spark.load.world import ID, ID_HEX, OTHER_ID, Clock, FakeBrokers


def view(brokers: FakeBrokers, clock: Clock) -> LoadedTopics:
    return LoadedTopics(brokers, ["orders"], clock=clock, sleep=clock.sleep)


def test_partitions_with_their_logs_and_the_topics_id() -> None:
    found = view(FakeBrokers({"orders": (ID, [(0, 10), (5, 5)])}), Clock()).look()
    assert found == {
        TopicPartition("orders", 0): LogBounds(ID_HEX, 0, 10),
        TopicPartition("orders", 1): LogBounds(ID_HEX, 5, 5),
    }


def test_a_topic_that_is_not_there_is_said_at_once() -> None:
    clock = Clock()
    with pytest.raises(UnknownTopicOrPartitionError):
        view(FakeBrokers({}), clock).look()
    assert clock.now == 0


@pytest.mark.parametrize("glitch", [{"orders": (ID, [])}, {"orders": (ID, [(0, 10)])}, {}])
def test_lesson_14_an_answer_without_partitions_forgets_nothing(
    glitch: dict[str, tuple[str, list[tuple[int, int]]]],
) -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10), (0, 20)])})
    topics = view(brokers, Clock())
    before = topics.look()
    brokers.glitches = [glitch, glitch]
    assert topics.look() == before


def test_lesson_14_a_first_answer_without_partitions_is_asked_again() -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10)])})
    brokers.glitches = [{"orders": (ID, [])}]
    assert len(view(brokers, Clock()).look()) == 1


def test_lesson_15_an_end_that_goes_back_for_a_moment_is_asked_again() -> None:
    brokers = FakeBrokers({"orders": (ID, [(3, 10)])})
    topics = view(brokers, Clock())
    before = topics.look()
    brokers.glitches = [{"orders": (ID, [(3, 3)])}]
    assert topics.look() == before


def test_an_end_that_stays_back_is_believed_in_the_end() -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10)])})
    clock = Clock()
    topics = view(brokers, clock)
    topics.look()
    brokers.topics = {"orders": (ID, [(0, 4)])}
    assert topics.look()[TopicPartition("orders", 0)].log_end == 4
    assert clock.now >= 5


def test_a_topic_made_anew_may_be_smaller() -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10), (0, 10)])})
    clock = Clock()
    topics = view(brokers, clock)
    topics.look()
    brokers.topics = {"orders": (OTHER_ID, [(0, 1)])}
    assert len(topics.look()) == 1
    assert clock.now == 0


def test_partitions_that_are_added_are_seen() -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10)])})
    topics = view(brokers, Clock())
    topics.look()
    brokers.topics = {"orders": (ID, [(0, 10), (0, 0)])}
    assert len(topics.look()) == 2


def test_with_read_committed_an_open_transaction_is_the_end_for_now() -> None:
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    brokers = FakeBrokers({"orders": (ID, [(0, 10), (5, 9)])})
    brokers.stable = {zero: 7, one: 9}
    found = LoadedTopics(brokers, ["orders"], read_committed=True).look()
    assert found == {zero: LogBounds(ID_HEX, 0, 10, 7), one: LogBounds(ID_HEX, 5, 9, 9)}
    assert [seen.readable_end for seen in found.values()] == [7, 9]
    assert view(brokers, Clock()).look()[zero].readable_end == 10


def test_the_size_of_an_offset_is_asked_for_now_and_then() -> None:
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    brokers = FakeBrokers({"orders": (ID, [(10, 30), (5, 5)])})
    brokers.sizes = {zero: 1000, one: 0, TopicPartition("others", 0): 7}
    clock = Clock()
    topics = view(brokers, clock)
    seen = topics.look()
    assert topics.sizes(seen) == {zero: 50.0}
    brokers.sizes[zero] = 2000
    assert topics.sizes(seen) == {zero: 50.0} and brokers.measured == 1
    clock.sleep(61)
    assert topics.sizes(seen) == {zero: 100.0}


def test_the_size_of_an_offset_stays_what_it_was_when_measured() -> None:
    """Bytes of a minute ago, over the offsets of now, would make large records small."""
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    brokers = FakeBrokers({"orders": (ID, [(0, 1), (0, 0)])})
    brokers.sizes = {zero: 1000, one: 0}
    topics = view(brokers, Clock())
    assert topics.sizes(topics.look()) == {zero: 1000.0}, "of an empty log nothing is known"
    brokers.topics = {"orders": (ID, [(0, 125_000), (0, 125_000)])}
    assert topics.sizes(topics.look()) == {zero: 1000.0}
    anew = {zero: LogBounds("another", 0, 5)}
    assert topics.sizes(anew) == {}, "a topic made anew is another one"


def test_who_may_not_ask_for_sizes_does_without() -> None:
    brokers = FakeBrokers({"orders": (ID, [(0, 10)])})
    brokers.sizes = None
    topics = view(brokers, Clock())
    seen = topics.look()
    assert topics.sizes(seen) == {} == topics.sizes(seen)
    assert brokers.measured == 1, "nor asks all the time"


def test_a_pattern_finds_whole_names_and_new_topics() -> None:
    brokers = FakeBrokers({"shop-a": (ID, [(0, 1)]), "my-shop-a": (ID, [(0, 1)])})
    clock = Clock()
    topics = LoadedTopics(brokers, [], pattern="shop-.*", clock=clock, sleep=clock.sleep)
    assert [one.topic for one in topics.look()] == ["shop-a"]
    brokers.topics = {**brokers.topics, "shop-b": (OTHER_ID, [(0, 1)])}
    assert [one.topic for one in topics.look()] == ["shop-a", "shop-b"]
    assert clock.now == 0


def test_a_topic_of_a_pattern_that_is_deleted_goes_after_a_while() -> None:
    brokers = FakeBrokers({"shop-a": (ID, [(0, 1)]), "shop-b": (OTHER_ID, [(0, 1)])})
    clock = Clock()
    topics = LoadedTopics(brokers, [], pattern="shop-.*", clock=clock, sleep=clock.sleep)
    topics.look()
    brokers.topics = {"shop-b": (OTHER_ID, [(0, 1)])}
    assert [one.topic for one in topics.look()] == ["shop-b"]
    assert clock.now >= 5, "an answer may be out of date"
    before = clock.now
    topics.look()
    assert clock.now == before


def test_a_pattern_that_matches_nothing() -> None:
    assert LoadedTopics(FakeBrokers({"orders": (ID, [(0, 1)])}), [], pattern="shop-.*").look() == {}
