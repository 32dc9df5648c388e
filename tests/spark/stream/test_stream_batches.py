"""What each batch of a stream reads: one after the other, limited, split, up to the end."""

from __future__ import annotations

import pickle

from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows

from millstream import Admin
from millstream.spark.planning.losses import recreated
from millstream.spark.planning.offsets import StreamOffset
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.stream.asking import ALL, MakeStream


def test_batches_follow_each_other_without_a_gap(new_topic: NewTopic, fill: Fill, stream: MakeStream) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    asked = stream(topic)
    start = asked.start()
    first = asked.next(start)
    assert asked.ranges(start, first) == [(topic, 0, 0, 10)]
    assert asked.next(first) == first, "nothing new is the same offset"
    fill(topic, 5, partition=1)
    second = asked.next(first)
    assert asked.ranges(first, second) == [(topic, 1, 0, 5)]
    assert asked.ranges(start, second) == [(topic, 0, 0, 10), (topic, 1, 0, 5)]
    assert asked.reader.reportLatestOffset() == {topic: {"0": 10, "1": 5}}


def test_a_batch_is_limited(new_topic: NewTopic, fill: Fill, stream: MakeStream) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 30)
    fill(topic, 10, partition=1)
    asked = stream(topic, maxOffsetsPerTrigger="8")
    limit = asked.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    start = asked.start()
    assert asked.ranges(start, asked.next(start, limit)) == [(topic, 0, 0, 6), (topic, 1, 0, 2)]
    assert len(asked.ranges(start, asked.next(start, ALL))) == 2, "Trigger.Once reads everything"


def test_a_batch_waits_for_enough_but_not_for_ever(
    new_topic: NewTopic, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 3)
    asked = stream(topic, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    limit = asked.reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = asked.start()
    first = asked.next(start, limit)
    assert asked.ranges(start, first) == [(topic, 0, 0, 3)], "the first batch does not wait"
    start = first
    fill(topic, 3)
    assert asked.next(start, limit) == start
    hasty = stream(topic, minOffsetsPerTrigger="5", maxTriggerDelay="0")
    assert hasty.next(start, limit) != start
    fill(topic, 2)
    assert asked.next(start, limit) != start


def test_available_now_ends_at_what_was_there(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    asked.reader.prepareForTriggerAvailableNow()
    start = asked.start()
    fill(topic, 10)
    admin.create_partitions(topic, 2)
    fill(topic, 4, partition=1)
    first = asked.next(start)
    assert asked.ranges(start, first) == [(topic, 0, 0, 10)]
    assert asked.next(first) == first, "what came later is for the next run"
    later = stream(topic)
    end = later.next(first)
    assert later.ranges(first, end) == [(topic, 0, 10, 20), (topic, 1, 0, 4)]


def test_a_reader_can_be_pickled_while_it_is_connected(new_topic: NewTopic, stream: MakeStream) -> None:
    asked = stream(new_topic())
    asked.start()
    copy = pickle.loads(pickle.dumps(asked.reader))
    assert copy._client is None and asked.reader._client is not None


def test_what_is_planned_is_split(new_topic: NewTopic, fill: Fill, stream: MakeStream) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic, maxRecordsPerPartition="4")
    start = asked.start()
    ranges = asked.ranges(start, asked.next(start))
    assert ranges == [(topic, 0, 0, 3), (topic, 0, 3, 6), (topic, 0, 6, 10)]


def test_a_checkpoint_of_sparks_own_source_is_continued(
    new_topic: NewTopic, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    written = {topic: {"0": 4}}
    asked = stream(topic)
    assert asked.ranges(written, asked.next(written)) == [(topic, 0, 4, 10)]
    assert recreated(StreamOffset.from_dict(written), {topic: "any"}) == set()
