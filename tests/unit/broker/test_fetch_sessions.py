"""Incremental fetch sessions (KIP-227), without a broker."""

from __future__ import annotations

import itertools

import pytest

from millstream.broker.fetch_sessions import EVICTION_MS, FINAL_EPOCH, INITIAL_EPOCH, FetchSessions
from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NOW = 5_000


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(2, itertools.count(1).__next__)


def request(epoch: int, session_id: int = 0, forget: tuple[int, ...] = (), **offsets: int) -> FetchRequest:
    """A fetch of topic ``t``: ``p0=5`` reads partition 0 from offset 5."""
    wanted = [
        FetchPartition(partition=int(name[1:]), fetch_offset=offset, partition_max_bytes=100)
        for name, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))] if forget else [],
    )


def answer(high_watermark: int = 10, records: bytes = b"", error_code: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=error_code,
        high_watermark=high_watermark,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )


def read_offsets(sessions: FetchSessions, wanted: FetchRequest) -> dict[int, int]:
    plan = sessions.plan(wanted, NOW)
    assert plan.error_code == 0
    return {key[2]: cached.request.fetch_offset for key, cached in plan.session.partitions.items()}


def test_a_session_remembers_what_was_asked(sessions: FetchSessions) -> None:
    first = sessions.plan(request(INITIAL_EPOCH, p0=5, p1=7), NOW)
    assert first.session_id == 1
    assert not first.incremental
    assert read_offsets(sessions, request(1, 1)) == {0: 5, 1: 7}
    assert read_offsets(sessions, request(2, 1, p1=9, p2=0)) == {0: 5, 1: 9, 2: 0}
    assert read_offsets(sessions, request(3, 1, forget=(0, 2))) == {1: 9}


def test_a_wrong_epoch_or_session_is_an_error(sessions: FetchSessions) -> None:
    sessions.plan(request(INITIAL_EPOCH, p0=5), NOW)
    assert sessions.plan(request(1, 99), NOW).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(2, 1), NOW).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.plan(request(1, 1), NOW).error_code == 0


def test_the_epoch_wraps_past_zero(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(INITIAL_EPOCH, p0=5), NOW)
    plan.session.epoch = 0x7FFFFFFF
    assert sessions.plan(request(0x7FFFFFFF, 1), NOW).error_code == 0
    assert sessions.plan(request(1, 1), NOW).error_code == 0


def test_a_full_fetch_ends_its_session_and_may_start_another(sessions: FetchSessions) -> None:
    sessions.plan(request(INITIAL_EPOCH, p0=5), NOW)
    assert sessions.plan(request(INITIAL_EPOCH, 1, p0=6), NOW).session_id == 2
    assert sessions.plan(request(FINAL_EPOCH, 2, p0=6), NOW).session_id == 0
    assert len(sessions) == 0


def test_older_sessions_of_the_same_size_stay(sessions: FetchSessions) -> None:
    for _ in range(2):
        sessions.plan(request(INITIAL_EPOCH, p0=0), NOW)
    later = NOW + EVICTION_MS
    for epoch in (1, 2):
        assert [sessions.plan(request(epoch, one), later).error_code for one in (1, 2)] == [0, 0]
        for _ in range(10):
            refused = sessions.plan(request(INITIAL_EPOCH, p0=0), later + 1)
            assert (refused.session_id, len(refused.session.partitions)) == (0, 1), (
                "it is served, without a session"
            )


def test_a_session_unused_for_long_makes_room(sessions: FetchSessions) -> None:
    for _ in range(2):
        sessions.plan(request(INITIAL_EPOCH, p0=0), NOW)
    sessions.plan(request(1, 1), NOW + 1)
    assert sessions.plan(request(INITIAL_EPOCH, p0=0), NOW + EVICTION_MS).session_id == 0
    assert sessions.plan(request(INITIAL_EPOCH, p0=0), NOW + EVICTION_MS + 1).session_id == 3
    gone = sessions.plan(request(1, 2), NOW + EVICTION_MS + 1)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(2, 1), NOW + EVICTION_MS + 1).error_code == 0


def test_a_larger_session_replaces_the_smallest_that_is_old_enough(sessions: FetchSessions) -> None:
    sessions.plan(request(INITIAL_EPOCH, p0=0, p1=0), NOW)
    sessions.plan(request(INITIAL_EPOCH, p0=0), NOW + 1)
    larger = request(INITIAL_EPOCH, p0=0, p1=0, p2=0)
    assert sessions.plan(larger, NOW + EVICTION_MS).session_id == 0, "none is old enough"
    for one in (1, 2):
        sessions.plan(request(1, one), NOW + EVICTION_MS)
    assert sessions.plan(larger, NOW + EVICTION_MS + 1001).session_id == 3
    gone = sessions.plan(request(2, 2), NOW + EVICTION_MS + 1001)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_more_consumers_than_sessions_do_not_thrash() -> None:
    sessions = FetchSessions(1000, itertools.count(1).__next__)
    held = [sessions.plan(request(INITIAL_EPOCH, p0=0), NOW).session_id for _ in range(1100)]
    assert [bool(one) for one in held] == [True] * 1000 + [False] * 100
    for turn in range(1, 500):  # 250 s, a fetch of each every half second
        now_ms = NOW + turn * 500
        if turn % 50 == 1:  # all of them, but not always, to be quick
            held_plans = [sessions.plan(request(1 + turn // 50, one), now_ms) for one in held[:1000]]
            assert not any(plan.error_code for plan in held_plans)
        assert sessions.plan(request(INITIAL_EPOCH, p0=0), now_ms).session_id == 0


def test_only_news_is_told(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(INITIAL_EPOCH, p0=0), NOW)
    (cached,) = plan.session.partitions.values()

    def is_news(found: PartitionData) -> bool:
        news = cached.has_news(found)
        cached.sent(found)
        return news

    assert is_news(answer())
    assert not is_news(answer())
    assert is_news(answer(high_watermark=11))
    assert is_news(answer(high_watermark=11, records=b"x"))
    assert not is_news(answer(high_watermark=11))
    assert is_news(answer(high_watermark=11, error_code=1))
    assert is_news(answer(high_watermark=11)), "the end of an error is news"
    assert not is_news(answer(high_watermark=11))
