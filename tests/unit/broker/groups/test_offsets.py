"""OffsetCommit and OffsetFetch: who may commit, when a commit can be seen, and what is read back."""

from __future__ import annotations

import pytest

from millstream.broker.groups.state.records import CommittedOffset
from millstream.errors import ErrorCode
from millstream.wire.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from tests.unit.broker.groups.bench import (
    GROUP,
    INITIAL_DELAY_MS,
    SESSION_MS,
    T0,
    T1,
    Bench,
    commit_errors,
    offsets_in,
)

# ---- who may commit ----


def test_members_of_the_generation_commit() -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    assert commit_errors(bench.commit({T0: 5, T1: 6}, one, 1)) == [ErrorCode.NONE] * 2
    assert bench.committed() == {T0: 5, T1: 6}


@pytest.mark.parametrize(
    ("member", "generation", "instance_id", "error"),
    [
        ("one", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("one", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("one", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("who", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("one", 1, "i0", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i0", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_nobody_else_commits_while_there_are_members(
    member: str, generation: int, instance_id: str | None, error: ErrorCode
) -> None:
    bench = Bench()
    one, _ = bench.stable_group()
    member_id = one if member == "one" else member
    assert commit_errors(bench.commit({T0: 5}, member_id, generation, instance_id=instance_id)) == [error]
    assert bench.committed() == {}
    assert bench.coordinator.counters.commits_refused == 1


def test_a_group_without_members_belongs_to_simple_consumers() -> None:
    bench = Bench()
    assert commit_errors(bench.commit({T0: 5})) == [ErrorCode.NONE]
    (listed,) = bench.listed()
    assert (listed.group_id, listed.group_state, listed.protocol_type) == (GROUP, "Empty", "")
    assert commit_errors(bench.commit({T0: 6}, "zombie", 3)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert bench.committed() == {T0: 5}


def test_an_administrator_may_move_the_offsets_of_a_group_that_all_have_left() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.commit({T0: 5}, one, 1)
    bench.leave(one)
    assert commit_errors(bench.commit({T0: 0})) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 0}


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_no_group(version: int, error: ErrorCode) -> None:
    bench = Bench()
    assert commit_errors(bench.commit({T0: 5}, "who", 1, version=version)) == [error]
    assert bench.listed() == []


def test_during_a_rebalance_the_old_generation_commits_until_the_new_one_begins() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.join(one)
    assert commit_errors(bench.commit({T0: 5}, two, 1)) == [ErrorCode.NONE]
    bench.join(two)
    assert commit_errors(bench.commit({T0: 6}, two, 1)) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit_errors(bench.commit({T0: 7}, two, 2)) == [ErrorCode.REBALANCE_IN_PROGRESS]
    bench.settle(one, two, generation=2)
    assert commit_errors(bench.commit({T0: 8}, two, 2)) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 8}


def test_a_commit_keeps_the_session() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    for offset in range(3):
        bench.advance(SESSION_MS - 1)
        assert commit_errors(bench.commit({T0: offset}, one, 1)) == [ErrorCode.NONE]
    assert bench.state() == "Stable"


# ---- what may be committed ----


def test_partitions_that_do_not_exist_and_metadata_that_is_too_large_are_refused_one_by_one() -> None:
    bench = Bench(topics=["t"])
    one, _ = bench.stable_group()
    other = T0._replace(topic="gone")
    errors = commit_errors(bench.commit({T0: 5, other: 6}, one, 1))
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    too_long = bench.commit({T0: 7, other: 8}, one, 1, metadata="x" * 4_097)
    assert commit_errors(too_long) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert commit_errors(bench.commit({T1: 7}, one, 1, metadata="x" * 4_096)) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 5, T1: 7}


def test_a_commit_of_nothing_that_exists_makes_no_group() -> None:
    bench = Bench(topics=[])
    assert commit_errors(bench.commit({T0: 5})) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert bench.listed() == []
    assert commit_errors(bench.commit({})) == []


def test_all_that_was_committed_is_stored() -> None:
    bench = Bench()
    bench.commit({T0: 5}, metadata="note", leader_epoch=3)
    bench.commit({T1: 6}, metadata=None, retention_ms=1_000, version=4)
    now_ms = bench.moment.epoch_ms
    assert bench.coordinator.store.offsets[GROUP] == {
        T0: CommittedOffset(5, "note", 3, now_ms),
        T1: CommittedOffset(6, "", -1, now_ms, now_ms + 1_000),
    }


# ---- the disk ----


def test_a_commit_is_neither_answered_nor_seen_before_it_is_durable() -> None:
    bench = Bench(slow_disk=True)
    commit = bench.commit({T0: 5})
    assert not commit.answered
    assert bench.committed() == {}
    bench.flush()
    assert commit_errors(commit) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 5}


def test_a_commit_that_could_not_be_stored_says_so_and_leaves_no_trace() -> None:
    bench = Bench(slow_disk=True, topics=["t"])
    commit = bench.commit({T0: 5, T0._replace(topic="gone"): 6})
    bench.fail()
    assert commit_errors(commit) == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert bench.committed() == {}
    assert bench.listed() == []
    assert bench.coordinator.counters.writes_failed == 1


def test_of_two_commits_in_flight_the_later_wins_whatever_fails() -> None:
    for failing, expected in (((), 6), ((0,), 6), ((1,), 5), ((0, 1), None)):
        bench = Bench(slow_disk=True)
        commits = [bench.commit({T0: 5}), bench.commit({T0: 6})]
        for index, commit in enumerate(commits):
            if index in failing:
                bench.fail()
            else:
                bench.flush(1)
            assert commit.answered
        assert bench.committed() == ({} if expected is None else {T0: expected})


def test_a_commit_that_was_accepted_is_stored_even_if_its_member_is_gone_meanwhile() -> None:
    bench = Bench()
    (one,) = bench.stable_group(1)
    bench.slow_disk = True
    commit = bench.commit({T0: 5}, one, 1)
    bench.leave(one)
    bench.flush()
    assert commit_errors(commit) == [ErrorCode.NONE]
    assert bench.committed() == {T0: 5}


def test_a_stable_fetch_waits_for_the_commits_that_came_before_it_only() -> None:
    bench = Bench(slow_disk=True)
    bench.commit({T0: 5})
    bench.commit({T0: 6})
    stable, hasty = bench.fetch([T0], require_stable=True), bench.fetch([T0])
    assert offsets_in(hasty) == {T0: -1}
    bench.commit({T0: 7})
    bench.flush(1)
    assert not stable.answered
    bench.flush(1)
    assert offsets_in(stable) == {T0: 6}
    bench.flush()
    assert offsets_in(bench.fetch([T0], require_stable=True)) == {T0: 7}


def test_a_stable_fetch_is_answered_when_what_it_waits_for_fails() -> None:
    bench = Bench(slow_disk=True)
    bench.commit({T0: 5})
    stable = bench.fetch([T0], require_stable=True)
    bench.fail()
    assert offsets_in(stable) == {T0: -1}


def test_a_stable_fetch_does_not_wait_for_other_groups() -> None:
    bench = Bench(slow_disk=True)
    bench.commit({T0: 5}, group_id="other")
    assert offsets_in(bench.fetch([T0], require_stable=True)) == {T0: -1}


# ---- reading ----


def test_several_groups_and_all_their_topics_in_one_request() -> None:
    bench = Bench()
    bench.commit({T1: 6, T0: 5, T0._replace(topic="a"): 1}, metadata="note", leader_epoch=2)
    bench.commit({T0: 9}, group_id="other")
    asked = [
        OffsetFetchRequestGroup(group_id=GROUP, topics=None),
        OffsetFetchRequestGroup(
            group_id="other", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 7])]
        ),
        OffsetFetchRequestGroup(group_id="nobody", topics=None),
    ]
    found = bench.ask(OffsetFetchRequest(groups=asked), 8, OffsetFetchResponse).groups
    assert [(group.group_id, group.error_code) for group in found] == [
        (GROUP, 0),
        ("other", 0),
        ("nobody", 0),
    ]
    assert [topic.name for topic in found[0].topics] == ["a", "t"]
    assert found[0].topics[1].partitions == [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offset, committed_leader_epoch=2, metadata="note"
        )
        for index, offset in ((0, 5), (1, 6))
    ]
    assert [entry.committed_offset for entry in found[1].topics[0].partitions] == [9, -1]
    assert found[1].topics[0].partitions[1].metadata == ""
    assert found[2].topics == []


@pytest.mark.parametrize("version", range(1, 8))
def test_older_versions_ask_for_one_group(version: int) -> None:
    bench = Bench()
    bench.commit({T0: 5}, metadata="note", leader_epoch=2)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    response = bench.ask(OffsetFetchRequest(group_id=GROUP, topics=topics), version, OffsetFetchResponse)
    assert response.error_code == 0
    assert response.topics[0].partitions == [
        OffsetFetchResponsePartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata="note"
        ),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    if version >= 2:
        everything = bench.ask(OffsetFetchRequest(group_id=GROUP, topics=None), version, OffsetFetchResponse)
        assert [len(topic.partitions) for topic in everything.topics] == [1]


def test_offsets_of_a_group_in_its_first_join_phase_can_be_read() -> None:
    bench = Bench()
    bench.commit({T0: 5})
    bench.join_new()
    assert bench.committed() == {T0: 5}
    bench.advance(INITIAL_DELAY_MS)
    assert bench.committed() == {T0: 5}
