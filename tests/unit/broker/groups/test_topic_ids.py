"""OffsetCommit and OffsetFetch from version 10 on, which name topics by their ids."""

from __future__ import annotations

from millstream.errors import ErrorCode
from millstream.wire.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopics,
)
from tests.unit.broker.groups.bench import Bench

BY_ID = 10
HERE, GONE = b"orders".ljust(16, b"\0"), b"gone".ljust(16, b"\0")


def commit(bench: Bench, *topics: bytes) -> dict[bytes, int]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="note")
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[OffsetCommitRequestTopic(topic_id=topic, partitions=[partition]) for topic in topics],
    )
    answer = bench.ask(request, BY_ID, OffsetCommitResponse)
    return {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}


def fetch(bench: Bench, *topics: bytes) -> list[OffsetFetchResponseTopics]:
    """The offsets of these topics; of all, if none is named."""
    wanted = [OffsetFetchRequestTopics(topic_id=topic, partition_indexes=[0]) for topic in topics]
    group = OffsetFetchRequestGroup(group_id="g", topics=wanted or None)
    answer = bench.ask(OffsetFetchRequest(groups=[group]), BY_ID, OffsetFetchResponse)
    return answer.groups[0].topics


def test_offsets_are_committed_and_read_by_id() -> None:
    bench = Bench(topics=["orders"])
    assert commit(bench, HERE) == {HERE: ErrorCode.NONE}
    (topic,) = fetch(bench, HERE)
    assert topic.topic_id == HERE
    assert (topic.partitions[0].committed_offset, topic.partitions[0].metadata) == (7, "note")


def test_an_unknown_id_is_refused_and_the_others_are_stored() -> None:
    bench = Bench(topics=["orders"])
    assert commit(bench, GONE) == {GONE: ErrorCode.UNKNOWN_TOPIC_ID}
    assert commit(bench, GONE, HERE) == {GONE: ErrorCode.UNKNOWN_TOPIC_ID, HERE: ErrorCode.NONE}
    found = {topic.topic_id: topic.partitions[0] for topic in fetch(bench, GONE, HERE)}
    assert (found[GONE].error_code, found[GONE].committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    assert (found[HERE].error_code, found[HERE].committed_offset) == (ErrorCode.NONE, 7)


def test_all_offsets_leave_out_topics_that_are_gone() -> None:
    bench = Bench(topics=["orders", "gone"])
    assert commit(bench, HERE, GONE) == {HERE: ErrorCode.NONE, GONE: ErrorCode.NONE}
    assert {topic.topic_id for topic in fetch(bench)} == {HERE, GONE}
    assert bench.topics is not None
    bench.topics.remove("gone")
    assert [topic.topic_id for topic in fetch(bench)] == [HERE]
