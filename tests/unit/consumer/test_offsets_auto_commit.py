"""Commits that nobody asks for: at their interval, before partitions are revoked, at close."""

from __future__ import annotations

from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from tests.unit.consumer.offsets_harness import Store, committed_in, offsets


def test_automatic_commits_come_at_their_interval() -> None:
    store = Store(auto_commit_interval_ms=5_000)
    store.store.partitions_assigned(store.now_ms)
    store.store.auto_commit_if_due(lambda: offsets(t0=1), store.now_ms + 4_999)
    store.step()
    assert not store.store_sends
    store.now_ms += 5_000
    store.store.auto_commit_if_due(lambda: offsets(t0=2), store.now_ms)
    store.step()
    store.store.auto_commit_if_due(lambda: offsets(t0=3), store.now_ms + 5_000)
    assert committed_in(store.committed()) == {TopicPartition("t", 0): 2}
    done = store.done()
    assert done.automatic and done.error is None
    assert not store.store_sends, "one at a time"


def test_an_automatic_commit_that_fails_for_now_comes_again_soon() -> None:
    store = Store(retry_backoff_ms=70)
    store.store.auto_commit_if_due(lambda: offsets(t0=2), store.now_ms)
    store.step()
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert store.store.auto_commit_at_ms == store.now_ms + 70


def test_nothing_to_commit_automatically() -> None:
    store = Store()
    store.store.auto_commit_if_due(dict, store.now_ms)
    store.step()
    assert not store.store_sends
    assert store.store.auto_commit_now(dict, store.now_ms + 1_000) is None


def test_automatic_commits_can_be_switched_off() -> None:
    store = Store(enable_auto_commit=False)
    store.store.auto_commit_if_due(lambda: offsets(t0=2), store.now_ms)
    assert store.store.auto_commit_now(lambda: offsets(t0=2), store.now_ms + 1_000) is None
    store.step()
    assert not store.store_sends


def test_the_commit_before_partitions_are_revoked_is_repeated() -> None:
    store = Store()
    commit_id = store.store.auto_commit_now(lambda: offsets(t0=2), store.now_ms + 1_000)
    store.step()
    store.committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    store.after(100)
    store.committed()
    done = store.done()
    assert (done.commit_id, done.automatic, done.error) == (commit_id, True, None)
