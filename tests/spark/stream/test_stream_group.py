"""Progress of a stream that a consumer group sees."""

from __future__ import annotations

import pytest

from millstream import Admin, Consumer, TopicPartition
from millstream.errors import MillstreamError
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.stream.asking import MakeStream
from tests.waiting import until


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
