"""Answers of a cluster that may be a passing mistake, and are not believed at once."""

from __future__ import annotations

import pytest

from millstream import TopicPartition
from millstream.errors import DataLostError
from millstream.spark.planning.offsets import StreamOffset
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.stream.asking import MakeStream, always, once


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
