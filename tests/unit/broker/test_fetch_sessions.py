"""Incremental fetch sessions (KIP-227), without a broker."""

from __future__ import annotations

import itertools

import pytest

from millstream.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSessions
from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


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
    plan = sessions.plan(wanted)
    assert plan.error_code == 0
    return {key[2]: cached.request.fetch_offset for key, cached in plan.partitions}


def test_a_session_remembers_what_was_asked(sessions: FetchSessions) -> None:
    first = sessions.plan(request(INITIAL_EPOCH, p0=5, p1=7))
    assert first.session_id == 1
    assert not first.incremental
    assert read_offsets(sessions, request(1, 1)) == {0: 5, 1: 7}
    assert read_offsets(sessions, request(2, 1, p1=9, p2=0)) == {0: 5, 1: 9, 2: 0}
    assert read_offsets(sessions, request(3, 1, forget=(0, 2))) == {1: 9}


def test_a_wrong_epoch_or_session_is_an_error(sessions: FetchSessions) -> None:
    sessions.plan(request(INITIAL_EPOCH, p0=5))
    assert sessions.plan(request(1, 99)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(2, 1)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.plan(request(1, 1)).error_code == 0


def test_the_epoch_wraps_past_zero(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(INITIAL_EPOCH, p0=5))
    assert plan.session is not None
    plan.session.epoch = 0x7FFFFFFF
    assert sessions.plan(request(0x7FFFFFFF, 1)).error_code == 0
    assert sessions.plan(request(1, 1)).error_code == 0


def test_a_full_fetch_ends_its_session_and_may_start_another(sessions: FetchSessions) -> None:
    sessions.plan(request(INITIAL_EPOCH, p0=5))
    assert sessions.plan(request(INITIAL_EPOCH, 1, p0=6)).session_id == 2
    assert sessions.plan(request(FINAL_EPOCH, 2, p0=6)).session_id == 0
    assert len(sessions) == 0


def test_the_session_unused_longest_is_forgotten(sessions: FetchSessions) -> None:
    for _ in range(2):
        sessions.plan(request(INITIAL_EPOCH, p0=0))
    sessions.plan(request(1, 1))
    assert sessions.plan(request(INITIAL_EPOCH, p0=0)).session_id == 3
    assert sessions.plan(request(1, 2)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.plan(request(2, 1)).error_code == 0


def test_only_news_is_told(sessions: FetchSessions) -> None:
    plan = sessions.plan(request(INITIAL_EPOCH, p0=0))
    _, cached = plan.partitions[0]
    assert cached.has_changed(answer())
    assert not cached.has_changed(answer())
    assert cached.has_changed(answer(high_watermark=11))
    assert cached.has_changed(answer(high_watermark=11, records=b"x"))
    assert not cached.has_changed(answer(high_watermark=11))
    assert cached.has_changed(answer(high_watermark=11, error_code=1))
    assert cached.has_changed(answer(high_watermark=11)), "the end of an error is news"
    assert not cached.has_changed(answer(high_watermark=11))
