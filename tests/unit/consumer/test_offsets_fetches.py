"""Reading committed offsets."""

from __future__ import annotations

import pytest

from millstream.client.targets import CoordinatorOf
from millstream.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    MillstreamTimeoutError,
    NetworkError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.unit.consumer.offsets_harness import Store

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_was_committed() -> None:
    store = Store()
    fetch_id = store.fetch("t-1", "t-0")
    assert store.store_sends[0].target == CoordinatorOf("g")
    request = store.fetched(t0=5, t1=-1)
    assert request.require_stable
    assert request.groups[0].topics is not None
    assert [(topic.name, topic.partition_indexes) for topic in request.groups[0].topics] == [("t", [0, 1])]
    found = store.answered()
    assert (found.fetch_id, found.error) == (fetch_id, None)
    assert found.offsets == {T0: OffsetAndMetadata(5, "note", 4), T1: None}


@pytest.mark.parametrize("version", range(1, 10))
def test_every_version_of_the_request(version: int) -> None:
    store = Store()
    store.fetch("t-0")
    request = store.request(version)
    decoded = OffsetFetchRequest.decode(request.encode(version), version)
    named = decoded.groups[0].topics if version >= 8 else decoded.topics
    assert named is not None and named[0].partition_indexes == [0]
    assert decoded.require_stable is (version >= 7)


@pytest.mark.parametrize("code", [0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_old_answers(code: int) -> None:
    store = Store()
    store.fetch("t-0")
    partition = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, metadata=None
    )
    topic = OffsetFetchResponseTopic(name="t", partitions=[partition])
    store.answer_store(OffsetFetchResponse(topics=[] if code else [topic], error_code=code))
    if code:
        store.after(100)
        store.fetched(t0=7)
        assert store.answered().offsets == {T0: OffsetAndMetadata(7, "note", 4)}
    else:
        assert store.answered().offsets == {T0: OffsetAndMetadata(5, "", None)}


def test_without_a_subscription() -> None:
    store = Store(joined=False)
    store.fetch("t-0")
    assert not store.store_sends
    store.find()
    store.fetched(t0=5)
    assert store.answered().error is None


def test_nothing_asked() -> None:
    store = Store()
    store.fetch()
    assert store.answered().offsets == {}


def test_open_transactions_are_waited_for() -> None:
    """Only the partitions that were not answered are asked for again."""
    store = Store()
    store.fetch("t-0", "t-1")
    store.fetched(t0=5, t1=-int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    store.after(99)
    assert not store.store_sends
    store.after(1)
    request = store.fetched(t1=6)
    assert request.groups[0].topics is not None
    assert request.groups[0].topics[0].partition_indexes == [1]
    offsets = store.answered().offsets
    assert {partition: found.offset for partition, found in offsets.items() if found} == {T0: 5, T1: 6}


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_another_coordinator_is_asked(code: ErrorCode) -> None:
    store = Store()
    store.fetch("t-0")
    store.fetched(code)
    assert store.membership.coordinator is None
    store.refind()
    store.fetched(t0=5)
    assert store.answered().error is None


def test_a_broken_connection() -> None:
    store = Store()
    store.fetch("t-0")
    store.fail_store(NetworkError())
    store.refind()
    store.fetched(t0=5)
    assert store.answered().error is None


def test_the_deadline() -> None:
    store = Store()
    store.store.fetch_committed([T0], store.now_ms + 300)
    store.step()
    store.fetched(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.after(100)
    store.fetched(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert store.store.next_wake_ms(store.now_ms) == store.now_ms + 200
    store.after(200)
    assert isinstance(store.answered().error, MillstreamTimeoutError)


def test_a_group_that_is_not_allowed() -> None:
    store = Store()
    store.fetch("t-0")
    store.fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = store.answered().error
    assert isinstance(error, GroupAuthorizationFailedError) and "'g'" in str(error)


def test_a_topic_that_is_not_allowed() -> None:
    store = Store()
    store.fetch("t-0", "t-1")
    store.fetched(t0=5, t1=-int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    answered = store.answered()
    assert isinstance(answered.error, TopicAuthorizationFailedError) and "t-1" in str(answered.error)
    assert not answered.offsets


def test_a_group_that_is_refused_ends_it() -> None:
    store = Store(joined=False)
    store.fetch("t-0")
    store.find(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    store.step()
    assert isinstance(store.answered().error, GroupAuthorizationFailedError)


def test_a_request_that_cannot_be_built() -> None:
    store = Store()
    store.fetch("t-0")
    store.fail_store(UnsupportedVersionError())
    assert isinstance(store.answered().error, UnsupportedVersionError)


def test_several_at_once() -> None:
    store = Store()
    first, second = store.fetch("t-0"), store.fetch("t-1")
    store.fetched(t0=5)
    assert store.answered().fetch_id == first
    store.fetched(t1=6)
    assert store.answered().fetch_id == second
