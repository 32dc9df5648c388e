"""Offsets and groups that go: by request, with their topic, and by age."""

from __future__ import annotations

import pytest

from millstream.errors import ErrorCode
from millstream.wire.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.unit.broker.groups.bench import (
    GROUP,
    SESSION_MS,
    T0,
    T1,
    Bench,
    Parked,
    commit_errors,
    deleted,
    offsets_in,
    subscription,
)

OTHER = T0._replace(topic="other")
HOUR_MS = 3_600_000


def delete_offsets(bench: Bench, *topics: str, group_id: str = GROUP) -> Parked:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for topic in topics
        ],
    )
    return bench.send(request, 0)


def deletion_errors(request: Parked) -> list[int]:
    response = request.response(OffsetDeleteResponse)
    return [entry.error_code for topic in response.topics for entry in topic.partitions]


# ---- OffsetDelete ----


def test_offsets_of_topics_that_members_use_are_kept() -> None:
    bench = Bench(topics=["t", "other"])
    one, _ = bench.stable_group()
    bench.commit({T0: 1, OTHER: 2}, one, 1)
    request = delete_offsets(bench, "t", "other", "gone")
    assert deletion_errors(request) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert bench.committed() == {T0: 1}
    assert bench.coordinator.counters.offsets_deleted == 1


def test_offsets_of_a_group_that_all_have_left_can_be_deleted() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.commit({T0: 1}, one, 1)
    bench.leave(one)
    assert deletion_errors(delete_offsets(bench, "t")) == [ErrorCode.NONE]
    assert bench.committed() == {}
    assert bench.state() == "Empty", "the group itself stays"


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\xff\xff\xff\xff", b"\0\1\0\0\0\7"])
def test_a_subscription_that_cannot_be_read_protects_all_topics(metadata: bytes) -> None:
    bench = Bench()
    bench.stable_group(protocols=[("range", metadata)])
    assert deletion_errors(delete_offsets(bench, "t", "other")) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    bench = Bench()
    bench.stable_group(protocols=[("range", subscription("t", version=version))])
    assert deletion_errors(delete_offsets(bench, "t")) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert deletion_errors(delete_offsets(bench, "other")) == [ErrorCode.NONE]


def test_groups_of_other_kinds_must_be_empty() -> None:
    bench = Bench()
    bench.stable_group(protocol_type="connect")
    assert delete_offsets(bench, "t").error is ErrorCode.NON_EMPTY_GROUP
    assert delete_offsets(bench, "t", group_id="nobody").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_deletion_also_covers_a_commit_that_is_in_flight() -> None:
    bench = Bench(slow_disk=True)
    commit = bench.commit({T0: 1, T1: 2})
    request = delete_offsets(bench, "t")
    bench.flush(1)
    assert commit_errors(commit) == [ErrorCode.NONE] * 2
    assert not request.answered
    bench.flush()
    assert deletion_errors(request) == [ErrorCode.NONE]
    assert bench.committed() == {T1: 2}


def test_a_deletion_that_fails_deletes_nothing() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.slow_disk = True
    request = delete_offsets(bench, "t")
    bench.fail()
    assert request.error is ErrorCode.NOT_COORDINATOR
    assert bench.committed() == {T0: 1}


# ---- DeleteGroups ----


def test_only_empty_groups_that_exist_are_deleted() -> None:
    bench = Bench()
    bench.stable_group()
    bench.commit({T0: 1, T1: 1}, group_id="simple")
    assert deleted(bench.delete(GROUP, "simple", "nobody")) == {
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "simple": ErrorCode.NONE,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert bench.committed("simple") == {}
    assert [group.group_id for group in bench.listed()] == [GROUP]
    assert "simple" not in bench.replayed().offsets


def test_a_group_that_is_being_deleted_lets_nobody_in() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.commit({T0: 1}, one, 1)
    bench.leave(one)
    pending = bench.join().joined.member_id
    bench.slow_disk = True
    request = bench.delete(GROUP)
    assert not request.answered
    retry = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join().error is retry
    assert bench.join(pending).error is retry
    assert bench.sync(one, 1).error is retry
    assert bench.heartbeat(one, 1) is retry
    assert commit_errors(bench.commit({T0: 2})) == [retry]
    assert deleted(bench.delete(GROUP)) == {GROUP: ErrorCode.GROUP_ID_NOT_FOUND}
    assert bench.committed() == {T0: 1}, "nothing is gone yet"
    bench.flush()
    assert deleted(request) == {GROUP: ErrorCode.NONE}
    assert bench.committed() == {}
    assert bench.listed() == []
    assert bench.join().error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_group_that_could_not_be_deleted_is_open_again() -> None:
    bench = Bench()
    bench.commit({T0: 1})
    bench.slow_disk = True
    request = bench.delete(GROUP, "nobody")
    bench.fail()
    assert deleted(request) == {GROUP: ErrorCode.NOT_COORDINATOR, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert bench.committed() == {T0: 1}
    assert not bench.commit({T0: 2}).answered
    bench.flush()
    assert bench.committed() == {T0: 2}


def test_deleting_a_group_also_deletes_a_commit_that_is_in_flight() -> None:
    bench = Bench(slow_disk=True)
    bench.commit({T0: 1})
    bench.delete(GROUP)
    bench.flush()
    assert bench.listed() == []
    assert bench.replayed().offsets == {}


# ---- topics that are deleted ----


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    bench.commit({T0: 1, OTHER: 2}, one, 1)
    bench.commit({T1: 3}, group_id="simple")
    assert bench.coordinator.committed_topics() == {"t", "other"}
    bench.slow_disk = True
    bench.commit({T1: 4}, one, 1)
    bench.take(bench.coordinator.topic_deleted("t", bench.moment))
    bench.flush()
    assert bench.committed() == {OTHER: 2}
    assert bench.committed("simple") == {}
    assert "simple" in {group.group_id for group in bench.listed()}
    bench.slow_disk = False
    bench.advance(bench.settings.offsets_retention_check_interval_ms)
    assert "simple" not in {group.group_id for group in bench.listed()}


# ---- old age ----


def retention_bench() -> Bench:
    return Bench(offsets_retention_minutes=24 * 60, offsets_retention_check_interval_ms=HOUR_MS)


def test_a_groups_offsets_last_from_when_it_became_empty() -> None:
    bench = retention_bench()
    (one,) = bench.stable_group(1, session_ms=1_800_000)
    bench.commit({T0: 1}, one, 1)
    for _ in range(100):  # as long as there are members, for ever
        bench.advance(HOUR_MS // 4)
        assert bench.heartbeat(one, 1) is ErrorCode.NONE
    bench.leave(one)
    bench.advance(24 * HOUR_MS - 1)
    assert bench.committed() == {T0: 1}
    bench.advance(HOUR_MS)
    assert bench.committed() == {}
    assert bench.listed() == []
    assert bench.replayed() == type(bench.replayed())()
    assert bench.coordinator.counters.offsets_expired == 1


def test_a_simple_consumers_offsets_last_from_their_commit() -> None:
    bench = retention_bench()
    bench.commit({T0: 1})
    bench.advance(12 * HOUR_MS)
    bench.commit({T1: 2})
    bench.advance(13 * HOUR_MS)
    assert bench.committed() == {T1: 2}
    bench.advance(12 * HOUR_MS)
    assert bench.listed() == []


def test_offsets_of_a_topic_that_members_gave_up_expire() -> None:
    bench = retention_bench()
    (one,) = bench.stable_group(1, session_ms=1_800_000)
    bench.commit({T0: 1, OTHER: 2}, one, 1)
    for _ in range(101):
        bench.advance(HOUR_MS // 4)
        bench.heartbeat(one, 1)
    assert bench.committed() == {T0: 1}


def test_an_old_client_says_itself_how_long_its_offsets_last() -> None:
    bench = retention_bench()
    bench.commit({T0: 1}, retention_ms=30 * HOUR_MS, version=3)
    bench.commit({T1: 2}, retention_ms=2 * HOUR_MS, version=3)
    bench.restart()
    bench.advance(3 * HOUR_MS)
    assert bench.committed() == {T0: 1}
    bench.advance(26 * HOUR_MS)
    assert bench.committed() == {T0: 1}
    bench.advance(2 * HOUR_MS)
    assert bench.committed() == {}


def test_groups_that_nobody_uses_and_that_have_no_offsets_are_dropped() -> None:
    bench = retention_bench()
    (one,) = bench.stable_group(1)
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"
    bench.advance(HOUR_MS)
    assert bench.listed() == []
    assert bench.replayed().groups == {}
    assert bench.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_retention_survives_a_restart_and_starts_from_the_same_moment() -> None:
    bench = retention_bench()
    (one,) = bench.stable_group(1)
    bench.commit({T0: 1}, one, 1)
    bench.leave(one)
    bench.advance(20 * HOUR_MS)
    bench.restart()
    bench.advance(3 * HOUR_MS)
    assert bench.committed() == {T0: 1}
    bench.advance(2 * HOUR_MS)
    assert bench.committed() == {}


def test_an_offset_that_is_being_committed_anew_does_not_expire() -> None:
    bench = retention_bench()
    bench.commit({T0: 1})
    bench.advance(24 * HOUR_MS - 1)
    bench.slow_disk = True
    bench.commit({T0: 2})
    bench.advance(2 * HOUR_MS)
    stable = bench.fetch([T0], require_stable=True)
    bench.flush()
    assert offsets_in(stable) == {T0: 2}
    assert bench.committed() == {T0: 2}
