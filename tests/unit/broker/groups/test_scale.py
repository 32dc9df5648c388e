"""A thousand members: joining, heartbeating and losing one must not cost more than it should."""

from __future__ import annotations

from time import thread_time

from millstream.errors import ErrorCode
from tests.unit.broker.groups.bench import GROUP, SESSION_MS, Bench

MEMBERS = 1_000


def test_a_thousand_members_settle_live_and_rebalance() -> None:
    started = thread_time()
    bench = Bench()
    members = bench.stable_group(MEMBERS)
    assert len(bench.coordinator.store.groups[GROUP].members) == MEMBERS
    for _ in range(3):
        bench.advance(SESSION_MS // 2)
        assert all(bench.heartbeat(member, 1) is ErrorCode.NONE for member in members)
    bench.leave(members[0])
    joins = [bench.join(member) for member in members[1:]]
    assert {join.joined.generation_id for join in joins} == {2}
    bench.settle(*members[1:], generation=2)
    bench.advance(SESSION_MS)
    assert bench.state() == "Empty"
    assert bench.coordinator.counters.members_expired == MEMBERS - 1
    # Seconds on a slow machine; a scan of all members in each request would take a minute.
    assert thread_time() - started < 20


def test_asking_for_the_deadline_after_every_heartbeat_is_cheap() -> None:
    bench = Bench()
    members = bench.stable_group(MEMBERS)
    heap = bench.coordinator._table.timers._heap
    entries = len(heap)
    for _ in range(5):
        for member in members:
            bench.now_ms += 1
            bench.heartbeat(member, 1)
            deadline_ms = bench.coordinator.next_deadline_ms()
            assert deadline_ms is not None and deadline_ms > bench.now_ms
    assert len(bench.coordinator._table.timers._heap) <= entries
