"""Commits: as whom, how often, in which order, and what becomes of those that fail."""

from __future__ import annotations

import pytest

from millstream.client.targets import CoordinatorOf
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Lost, Revoke
from millstream.errors import (
    BrokerError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceIdError,
    MillstreamTimeoutError,
    MisuseError,
    NetworkError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    for_code,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from tests.unit.consumer.offsets_harness import SOON_MS, Store, committed_in, offsets


def test_a_commit_is_made_as_the_member() -> None:
    store = Store()
    value = OffsetAndMetadata(5, "note", 3)
    commit_id = store.store.commit({TopicPartition("t", 0): value}, store.now_ms + SOON_MS)
    store.step()
    assert store.store_sends[0].target == CoordinatorOf("g")
    request = store.committed()
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 1, "me")
    partition = request.topics[0].partitions[0]
    told = (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch)
    assert told == (5, "note", 3)
    done = store.done()
    assert (done.commit_id, done.error, done.automatic) == (commit_id, None, False)
    assert done.offsets == {TopicPartition("t", 0): value}


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version(version: int) -> None:
    store = Store()
    store.commit(t0=5)
    request = store.request(version)
    decoded = OffsetCommitRequest.decode(request.encode(version), version)
    assert committed_in(decoded) == {TopicPartition("t", 0): 5}


def test_without_a_subscription_there_is_no_member() -> None:
    store = Store(joined=False)
    store.commit(t0=5)
    assert not store.store_sends, "the coordinator is not known yet"
    store.find()
    request = store.committed()
    assert (request.generation_id_or_member_epoch, request.member_id) == (-1, "")
    assert store.done().error is None


def test_a_group_with_members_is_not_for_others() -> None:
    store = Store(joined=False)
    store.commit(t0=5)
    store.find()
    store.committed(ErrorCode.UNKNOWN_MEMBER_ID)
    error = store.done().error
    assert isinstance(error, CommitFailedError) and "'g' has members" in str(error)


def test_negative_offsets_are_refused() -> None:
    with pytest.raises(MisuseError, match="t-0"):
        Store().commit(t0=-1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_synchronous_commit_is_repeated(code: ErrorCode) -> None:
    store = Store()
    store.commit(t0=5)
    store.committed(code)
    assert not store.stored
    store.after(100)
    if store.membership.coordinator is None:
        store.find()
    store.committed()
    assert store.done().error is None


def test_it_backs_off() -> None:
    store = Store()
    store.commit(t0=5)
    for delay_ms in (100, 200, 400, 800, 1_000):
        store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert store.store.next_wake_ms(store.now_ms) == store.now_ms + delay_ms
        store.after(delay_ms - 1)
        assert not store.store_sends
        store.after(1)


def test_it_ends_with_its_deadline() -> None:
    store = Store()
    store.store.commit(offsets(t0=5), store.now_ms + 500)
    store.step()
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.after(100)
    store.fail_store(NetworkError())
    store.after(400)
    assert isinstance(store.done().error, MillstreamTimeoutError)


def test_only_what_failed_is_repeated() -> None:
    store = Store()
    store.commit(t0=5, t1=6)
    store.committed(t1=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.after(100)
    assert committed_in(store.committed()) == {TopicPartition("t", 1): 6}
    assert store.done().offsets == offsets(t0=5, t1=6)


def test_an_unknown_fate_is_repeated() -> None:
    store = Store()
    store.commit(t0=5)
    store.fail_store(NetworkError())
    assert store.membership.coordinator is None
    store.refind()
    store.committed()
    assert store.done().error is None


@pytest.mark.parametrize("error", [NetworkError(), MillstreamTimeoutError(), ConnectionResetError()])
def test_an_asynchronous_commit_is_sent_once(error: Exception) -> None:
    store = Store()
    store.commit_async(t0=5)
    store.fail_store(error)
    told = store.done().error
    assert isinstance(told, RetriableCommitFailedError)
    assert told.retriable and told.__cause__ is error
    store.refind()
    store.after(10_000)
    assert not store.store_sends


def test_an_asynchronous_commit_that_is_refused_for_now() -> None:
    store = Store()
    store.commit_async(t0=5)
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert isinstance(store.done().error, RetriableCommitFailedError)


def test_an_asynchronous_commit_waits_for_the_coordinator() -> None:
    store = Store(default_api_timeout_ms=1_000)
    store.membership.coordinator_lost("gone", store.now_ms)
    store.commit_async(t0=5)
    assert not store.store_sends
    store.refind()
    store.committed()
    assert store.done().error is None
    store.membership.coordinator_lost("gone", store.now_ms)
    store.commit_async(t0=6)
    store.after(1_000)
    assert isinstance(store.done().error, RetriableCommitFailedError)


def test_commits_go_out_in_the_order_in_which_they_were_made() -> None:
    store = Store()
    store.membership.coordinator_lost("gone", store.now_ms)
    for at in (5, 6, 7):
        store.commit_async(t0=at)
    store.refind()
    assert [committed_in(send.build(9)) for send in store.store_sends] == [  # type: ignore[arg-type]
        {TopicPartition("t", 0): at} for at in (5, 6, 7)
    ]


def test_a_later_commit_is_never_overwritten() -> None:
    """The older commit fails late; repeating it would move the offset back."""
    store = Store()
    older = store.commit(t0=5, t1=5)
    newer = store.commit_async(t0=9)
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.committed()
    assert store.done().commit_id == newer
    store.after(100)
    assert not store.store_sends
    done = store.done()
    assert done.commit_id == older
    assert isinstance(done.error, RetriableCommitFailedError)


def test_commits_of_other_partitions_do_not_hinder() -> None:
    store = Store()
    store.commit(t0=5)
    store.commit_async(t1=9)
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.committed()
    store.stored.clear()
    store.after(100)
    store.committed()
    assert store.done().error is None


def test_a_commit_of_nothing_waits_for_those_before_it() -> None:
    store = Store()
    first = store.commit_async(t0=5)
    second = store.commit()
    assert not store.stored
    store.committed()
    assert [event.commit_id for event in store.stored] == [first, second]  # type: ignore[union-attr]
    store.stored.clear()
    store.commit()
    assert store.done().error is None


# ---- who commits ----


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_stale_generation_is_told_and_not_repeated(code: ErrorCode) -> None:
    store = Store()
    store.commit(t0=5)
    store.committed(code)
    error = store.done().error
    assert isinstance(error, CommitFailedError)
    assert "the partitions are lost" in str(error) and "poll()" in str(error)
    assert store.has(Lost)
    store.commit(t0=6)
    assert isinstance(store.done().error, CommitFailedError)
    assert not store.store_sends


def test_a_rebalance_in_progress() -> None:
    store = Store()
    store.commit(t0=5)
    store.committed(ErrorCode.REBALANCE_IN_PROGRESS)
    assert isinstance(store.done().error, RebalanceInProgressError)
    assert store.has(Revoke), "the next poll takes part"


def test_commits_while_joining_are_refused_at_once() -> None:
    store = Store(cooperative=True)
    store.membership.request_rejoin("for fun")
    store.poll()
    assert store.phase() is MemberPhase.JOINING
    store.commit(t0=5)
    assert isinstance(store.done().error, RebalanceInProgressError)


def test_fenced() -> None:
    store = Store()
    store.commit_async(t0=5)
    store.committed(ErrorCode.FENCED_INSTANCE_ID)
    assert isinstance(store.done().error, FencedInstanceIdError)
    assert isinstance(store.membership.error, FencedInstanceIdError)


def test_old_news_about_a_former_generation_harm_nobody() -> None:
    store = Store(cooperative=True)
    store.commit_async(t0=5)
    store.membership.request_rejoin("for fun")
    store.settle("t-0", "t-1", generation=2, protocol=store.protocol)
    store.committed(ErrorCode.ILLEGAL_GENERATION)
    assert isinstance(store.done().error, CommitFailedError)
    assert store.phase() is MemberPhase.STABLE


def test_a_commit_from_before_a_loss_never_goes_out_after_it() -> None:
    """The new member would be let in, but somebody else may have committed in between."""
    store = Store(retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    store.commit(t0=5)
    store.fail_store(NetworkError())
    store.refind()
    store.membership.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, store.membership.metadata, store.now_ms)
    store.run_callbacks()
    store.after(100)
    store.settle("t-0", generation=2)
    assert store.phase() is MemberPhase.STABLE
    store.after(5_000)
    assert not store.store_sends
    error = store.done().error
    assert isinstance(error, CommitFailedError) and "given up or lost since" in str(error)


def test_a_commit_follows_its_member_into_the_next_generation() -> None:
    """As long as nothing was given up: a cooperative member has owned it all the time."""
    store = Store(cooperative=True, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    store.commit(t0=5)
    store.fail_store(NetworkError())
    store.refind()
    store.membership.request_rejoin("for fun")
    store.settle("t-0", "t-1", "t-2", generation=2, protocol=store.protocol)
    store.after(5_000)
    assert store.committed().generation_id_or_member_epoch == 2
    assert store.done().error is None


def test_a_commit_does_not_follow_when_something_was_given_up() -> None:
    store = Store(cooperative=True, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    store.commit(t0=5)
    store.fail_store(NetworkError())
    store.refind()
    store.membership.request_rejoin("for fun")
    store.settle("t-1", generation=2, protocol=store.protocol)
    store.join(3, protocol=store.protocol)
    store.sync("t-1")
    store.run_callbacks()
    store.after(5_000)
    assert isinstance(store.done().error, CommitFailedError)


# ---- errors for good ----


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_that_stay(code: ErrorCode) -> None:
    store = Store()
    store.commit(t0=5)
    store.committed(code)
    error = store.done().error
    assert isinstance(error, for_code(code)) and isinstance(error, BrokerError)
    assert store.phase() is MemberPhase.STABLE, "the membership has nothing to do with it"


def test_topics_that_are_not_allowed_are_named() -> None:
    store = Store()
    store.commit(t0=5, s1=1, u0=2)
    store.committed(t0=0, s1=ErrorCode.TOPIC_AUTHORIZATION_FAILED, u0=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = store.done().error
    assert isinstance(error, TopicAuthorizationFailedError) and "s, u" in str(error)


def test_a_partition_without_an_answer_is_not_committed() -> None:
    store = Store()
    store.commit(t0=5)
    store.answer_store(OffsetCommitResponse(topics=[]))
    assert store.done().error is not None


def test_a_request_that_cannot_be_built() -> None:
    store = Store()
    store.commit(t0=5)
    error = UnsupportedVersionError("too old")
    store.fail_store(error)
    assert store.done().error is error
