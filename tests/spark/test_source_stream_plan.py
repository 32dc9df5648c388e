"""The stream's decisions between two batches, asked as Spark asks them, without a Spark."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from millstream import Admin, Consumer, TopicPartition
from millstream.errors import ConfigError, DataLostError, MillstreamError, UnknownTopicOrPartitionError
from millstream.spark.planning.losses import recreated
from millstream.spark.planning.offsets import StreamOffset
from millstream.spark.reading.schema import COLUMNS
from millstream.spark.source.client import SourceClient
from millstream.spark.source.options import read_options
from millstream.spark.source.stream import StreamReader
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.waiting import SECONDS, until

ALL = ReadAllAvailable()
MakeStream = Callable[..., "Stream"]


class Stream:
    """Asks a reader as Spark does, with offsets as text in between."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader

    def start(self) -> dict[str, Any]:
        """The first offset that a batch can start from: Spark runs empty batches until there is one."""
        first = plain(self.reader.initialOffset())
        return self.next(first) if "#unstarted" in first else first

    def next(self, start: dict[str, Any], limit: ReadLimit = ALL) -> dict[str, Any]:
        return plain(self.reader.latestOffset(plain(start), limit))

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
        tasks = self.reader.partitions(plain(start), plain(end))
        return [(task.value.topic, task.value.partition, task.value.start, task.value.end) for task in tasks]


def plain(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


@pytest.fixture
def stream(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStream]:
    # How long a batch waits for a commit, and for how long it then tries none: a busy machine needs more.
    monkeypatch.setattr("millstream.spark.source.client._MIRROR_SECONDS", SECONDS)
    monkeypatch.setattr("millstream.spark.source.client._MIRROR_PAUSE_SECONDS", 3600.0)
    made: list[StreamReader] = []

    def make(topic: str = "", **options: str) -> Stream:
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
            **({"subscribe": topic} if topic else {}),
            **options,
        }
        made.append(StreamReader(read_options(given, streaming=True), COLUMNS))
        return Stream(made[-1])

    yield make
    for reader in made:
        reader.stop()


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


# -- where it starts


def test_latest_is_written_down_before_anything_is_read(
    new_topic: NewTopic, fill: Fill, stream: MakeStream
) -> None:
    """A crash in the first batch must not move the start to a later "latest"."""
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic, startingOffsets="latest")
    initial = plain(asked.reader.initialOffset())
    assert plain(asked.reader.initialOffset()) == initial
    first = asked.next(initial)
    assert first != initial and asked.ranges(initial, first) == []
    fill(topic, 5)
    again = stream(topic, startingOffsets="latest")  # batch 0 was planned, and is done again after a crash
    assert again.ranges(plain(again.reader.initialOffset()), first) == []
    assert again.ranges({**initial, topic: {"0": 0}}, first) == [], "wherever that may be"
    second = again.next(first)
    assert again.ranges(first, second) == [(topic, 0, 10, 15)]


def test_offsets_and_times(new_topic: NewTopic, producer: Any, stream: MakeStream) -> None:
    topic = new_topic(partitions=2)
    for number in range(5):
        producer.send(topic, b"x", partition=0, timestamp=1_000 * number)
    producer.flush()
    by_offset = stream(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": -1}}))
    assert by_offset.start()[topic] == {"0": 3, "1": 0}
    by_time = stream(topic, startingTimestamp="1500", startingOffsetsByTimestampStrategy="latest")
    assert by_time.start()[topic] == {"0": 2, "1": 0}
    with pytest.raises(ConfigError, match=f"{topic}-1 has no record that recent"):
        stream(topic, startingTimestamp="1500").start()
    with pytest.raises(ConfigError, match=f"does not name {topic}-1"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 3}})).start()
    with pytest.raises(ConfigError, match="which is not read here"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 3, "1": 0, "2": 0}})).start()
    with pytest.raises(DataLostError, match="the log ends at 5"):
        stream(topic, startingOffsets=json.dumps({topic: {"0": 30, "1": 0}})).start()


def test_committed_offsets_and_where_there_are_none(
    new_topic: NewTopic, fill: Fill, stream: MakeStream, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    fill(topic, 10, partition=1)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    asked = stream(topic, startingOffsets="committed", **{"kafka.group.id": group})
    assert asked.start()[topic] == {"0": 4, "1": 0}, "where the group has not been, nothing is skipped"


def test_committed_offsets_that_retention_has_passed(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, group: str, bootstrap_servers: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 4})
    admin.delete_records({TopicPartition(topic, 0): 7})
    options = {"startingOffsets": "committed", "kafka.group.id": group}
    with pytest.raises(DataLostError) as caught:
        stream(topic, **options).start()
    assert caught.value.ranges == ((topic, 0, 4, 7),)
    assert stream(topic, failOnDataLoss="false", **options).start()[topic] == {"0": 7}


def test_a_topic_that_is_not_there(stream: MakeStream, admin: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        stream("nowhere").start()
    assert "nowhere" not in admin.list_topics()


def test_partitions_that_are_assigned_and_not_there_are_read_once_they_are(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 3)
    asked = stream(assign=json.dumps({topic: [0, 1]}))
    start = asked.start()
    first = asked.next(start)
    assert asked.ranges(start, first) == [(topic, 0, 0, 3)]
    admin.create_partitions(topic, 2)
    fill(topic, 2, partition=1)
    second = asked.next(first)
    assert asked.ranges(second, asked.next(second)) == [(topic, 1, 0, 2)]


# -- what happens between batches


def test_new_topics_and_partitions_start_at_their_beginning(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    prefix = topic.rsplit("-", 2)[0]
    asked = stream(subscribePattern=f"{prefix}.*", startingOffsets="latest")
    start = asked.start()
    admin.create_partitions(topic, 2)
    fill(topic, 5, partition=1)
    other = new_topic()
    fill(other, 3)
    first = asked.next(start)
    assert asked.ranges(start, first) == [], "their beginnings are written down first"
    second = asked.next(first)
    assert asked.ranges(first, second) == sorted([(topic, 1, 0, 5), (other, 0, 0, 3)])


def test_the_beginning_of_a_new_partition_may_be_lost_already(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    start = stream(topic).start()
    admin.create_partitions(topic, 2)
    fill(topic, 5, partition=1)
    admin.delete_records({TopicPartition(topic, 1): 2})
    with pytest.raises(DataLostError) as caught:
        stream(topic).next(start)
    assert caught.value.ranges == ((topic, 1, 0, 2),)
    lenient = stream(topic, failOnDataLoss="false")
    first = lenient.next(start)
    assert lenient.ranges(first, lenient.next(first)) == [(topic, 1, 2, 5)]


def test_a_topic_made_anew_is_recognised_by_its_id(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    read = asked.next(asked.start())
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=1)
    fill(topic, 30)
    with pytest.raises(DataLostError, match="recreated"):
        stream(topic).next(read)
    lenient = stream(topic, failOnDataLoss="false")
    first = lenient.next(read)
    assert lenient.ranges(read, first) == []
    assert lenient.ranges(first, lenient.next(first)) == [(topic, 0, 0, 30)], "none of the new is skipped"


def test_a_topic_that_is_deleted(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = new_topic(), new_topic()
    fill(topic, 10)
    both = f"{topic},{other}"
    asked = stream(both)
    read = asked.next(asked.start())
    admin.delete_topics(topic)
    with pytest.raises(DataLostError, match="no longer exists"):
        stream(both).next(read)
    lenient = stream(both, failOnDataLoss="false")
    assert lenient.next(read) == read, "its offsets are kept for a while: it may come back"
    monkeypatch.setattr("millstream.spark.source.stream._KEEP_GONE_SECONDS", 0.0)
    assert topic not in lenient.next(read) and other in lenient.next(read)


def test_a_stream_whose_topics_are_all_gone_stays_where_it_is(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ``{}`` in the checkpoint: after that, everything would be new and read again."""
    monkeypatch.setattr("millstream.spark.source.stream._KEEP_GONE_SECONDS", 0.0)
    topic = new_topic()
    fill(topic, 10)
    asked = stream(subscribePattern=f"^{topic}$", failOnDataLoss="false")
    read = asked.next(asked.start())
    with monkeypatch.context() as patch:
        always(patch, "topics", ({}, []))  # the pattern matches nothing for a while
        assert asked.next(read) == read
    assert asked.next(read) == read
    fill(topic, 5)
    assert asked.ranges(read, asked.next(read)) == [(topic, 0, 10, 15)]
    admin.delete_topics(topic)
    assert asked.next(read) == read
    admin.create_topic(topic, partitions=1)
    fill(topic, 3)
    first = asked.next(read)
    assert asked.ranges(read, first) == []
    assert asked.ranges(first, asked.next(first)) == [(topic, 0, 0, 3)]


def test_a_pattern_without_topics_waits_for_them(new_topic: NewTopic, fill: Fill, stream: MakeStream) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    asked = stream(subscribePattern=name, startingOffsets="latest")
    start = asked.start()
    assert start == {} and asked.next(start) == start, "no batch, and so no {} in the checkpoint"
    topic = new_topic(name=name)
    fill(topic, 3)
    first = asked.next(start)
    assert asked.ranges(first, asked.next(first)) == [(topic, 0, 0, 3)]


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_deleted_after_a_batch_was_planned(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, recreated: bool
) -> None:
    topic, other = new_topic(), new_topic()
    fill(topic, 10)
    fill(other, 5)
    both = f"{topic},{other}"
    asked = stream(both)
    start = asked.start()
    end = asked.next(start)
    admin.delete_topics(topic)
    if recreated:
        admin.create_topic(topic, partitions=1)
        fill(topic, 20)
    with pytest.raises(DataLostError) as caught:
        asked.ranges(start, end)
    assert caught.value.ranges == ((topic, 0, 0, 10),)
    assert stream(both, failOnDataLoss="false").ranges(start, end) == [(other, 0, 0, 5)]


def test_retention_passes_the_start_of_a_planned_batch(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    start = asked.start()
    end = asked.next(start)
    admin.delete_records({TopicPartition(topic, 0): 6})
    with pytest.raises(DataLostError) as caught:
        asked.ranges(start, end)
    assert caught.value.ranges == ((topic, 0, 0, 6),)
    assert stream(topic, failOnDataLoss="false").ranges(start, end) == [(topic, 0, 6, 10)]


@pytest.mark.parametrize("reply", ["no topics", "no partitions", "fewer partitions"])
def test_a_poor_metadata_reply_is_not_taken_at_its_word(
    new_topic: NewTopic, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 5)
    asked = stream(topic)
    start = asked.start()
    ids = {} if reply == "no topics" else dict(StreamOffset.from_dict(start).topic_ids)
    partitions = [TopicPartition(topic, 0)] if reply == "fewer partitions" else []
    answers = once(monkeypatch, "topics", (ids, partitions))
    end = asked.next(start)
    assert not answers
    assert asked.ranges(start, end) == [(topic, 0, 0, 5)]


def test_an_end_that_goes_back_for_a_moment_is_not_taken_for_the_truth(
    new_topic: NewTopic, fill: Fill, stream: MakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic)
    read = asked.next(asked.start())
    once(monkeypatch, "latest", {TopicPartition(topic, 0): 0})
    assert asked.next(read) == read
    always(monkeypatch, "latest", {TopicPartition(topic, 0): 8})
    with pytest.raises(DataLostError) as caught:
        asked.next(read)
    assert caught.value.ranges == ((topic, 0, 8, 10),)
    lenient = stream(topic, failOnDataLoss="false")
    assert lenient.next(read)[topic] == {"0": 8}


def once(monkeypatch: pytest.MonkeyPatch, method: str, answer: object) -> list[object]:
    """Have the cluster give one wrong answer, and then the truth."""
    truth, wrong = getattr(SourceClient, method), [answer]
    monkeypatch.setattr(
        SourceClient, method, lambda self, *given: wrong.pop() if wrong else truth(self, *given)
    )
    return wrong


def always(monkeypatch: pytest.MonkeyPatch, method: str, answer: object) -> None:
    monkeypatch.setattr(SourceClient, method, lambda self, *given: answer)


# -- the group sees it


def test_progress_is_mirrored_to_the_group(
    new_topic: NewTopic, admin: Admin, fill: Fill, stream: MakeStream, group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    asked = stream(topic, commitOffsets="true", **{"kafka.group.id": group})
    start = asked.start()
    first = asked.next(start)
    assert admin.group_offsets(group) == {}, "nothing is durable yet"
    asked.reader.commit(first)
    assert committed(admin, group) == {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 0}
    fill(topic, 10)
    second = asked.next(first)
    asked.next(second)  # Spark asks for what follows: so the second batch is done
    assert committed(admin, group)[TopicPartition(topic, 0)] == 20
    assert admin.describe_group(group).lag == 0


@pytest.mark.parametrize(
    ("given", "commits"),
    [
        ({}, False),
        ({"commitOffsets": "true"}, True),
        ({"startingOffsets": "committed"}, True),
        ({"startingOffsets": "committed", "commitOffsets": "false"}, False),
    ],
)
def test_a_group_id_alone_writes_nothing(
    new_topic: NewTopic,
    admin: Admin,
    fill: Fill,
    stream: MakeStream,
    group: str,
    given: dict[str, str],
    commits: bool,
) -> None:
    """Jobs set it for ACLs: the offsets may be another program's."""
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic, **{"kafka.group.id": group}, **given)
    asked.reader.commit(asked.next(asked.start()))
    assert committed(admin, group) == ({TopicPartition(topic, 0): 10} if commits else {})


def test_a_mirror_that_fails_stops_nothing(
    new_topic: NewTopic,
    fill: Fill,
    stream: MakeStream,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic()
    fill(topic, 10)
    asked = stream(topic, commitOffsets="true", **{"kafka.group.id": group})
    first = asked.next(asked.start())
    tries = []

    def fail(*given: object, **more: object) -> None:
        tries.append(given)
        raise MillstreamError("the coordinator is away")

    monkeypatch.setattr(Consumer, "commit", fail)
    asked.reader.commit(first)
    assert "was not committed: the coordinator is away" in caplog.text
    asked.reader.commit(first)
    assert len(tries) == 1, "batches do not wait for a coordinator that is away"
    assert asked.next(first) == first


def test_a_live_group_is_left_alone(
    new_topic: NewTopic,
    fill: Fill,
    stream: MakeStream,
    group: str,
    bootstrap_servers: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Members of the group would be overruled by the stream's commits: the coordinator refuses them."""
    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as member:
        member.subscribe([topic])
        until(lambda: member.poll(0.1) or member.assignment(), "the member has its partition")
        asked = stream(topic, commitOffsets="true", **{"kafka.group.id": group})
        asked.reader.commit(asked.next(asked.start()))
        assert "was not committed" in caplog.text


def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    return {each: place.offset for each, place in admin.group_offsets(group).items()}


# -- how Spark handles it


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
