"""DescribeGroups, ListGroups, and the numbers that the coordinator keeps."""

from __future__ import annotations

import pytest

from millstream.errors import ErrorCode
from millstream.wire.messages.group_admin import DescribedGroupMember, ListedGroup
from tests.unit.broker.groups.bench import GROUP, INITIAL_DELAY_MS, T0, Bench, subscription


def test_a_stable_group_is_described_with_all_that_its_members_said() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    group = bench.describe()
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.members[1] == DescribedGroupMember(
        member_id=two,
        client_id="client",
        client_host="/127.0.0.1",
        member_metadata=subscription("t"),
        member_assignment=f"for {two}".encode(),
    )
    assert group.members[0].member_id == one


def test_during_a_rebalance_members_are_described_without_metadata() -> None:
    bench = Bench()
    bench.join_new()
    group = bench.describe()
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b""]
    bench.advance(INITIAL_DELAY_MS)
    assert bench.state() == "CompletingRebalance"


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_does_not_exist_is_dead(version: int, error: ErrorCode) -> None:
    group = Bench().describe("nobody", version)
    assert (group.group_state, group.error_code) == ("Dead", error)
    assert bool(group.error_message) == (version == 6)


def test_groups_are_listed_by_state_and_type() -> None:
    bench = Bench()
    bench.stable_group()
    bench.commit({T0: 1}, group_id="simple")
    stable = ListedGroup(group_id=GROUP, protocol_type="consumer", group_state="Stable", group_type="classic")
    simple = ListedGroup(group_id="simple", protocol_type="", group_state="Empty", group_type="classic")
    assert bench.listed() == [stable, simple]
    assert bench.listed(states=["stable "]) == [stable]
    assert bench.listed(states=["EMPTY", "Dead"]) == [simple]
    assert bench.listed(states=["nonsense"]) == []
    assert bench.listed(types=["Classic"]) == [stable, simple]
    assert bench.listed(types=["consumer"]) == []
    assert bench.listed(states=["Stable"], types=["classic"]) == [stable]


def test_what_happens_is_counted() -> None:
    bench = Bench()
    one, two = bench.stable_group()
    bench.commit({T0: 1}, one, 1)
    bench.commit({T0: 1}, one, 7)
    bench.leave(two)
    counters = bench.coordinator.counters
    assert (counters.members_joined, counters.members_left) == (2, 1)
    assert (counters.rebalances_started, counters.rebalances_completed) == (2, 1)
    assert (counters.offsets_committed, counters.commits_refused) == (1, 1)


def test_how_things_stand_can_be_read() -> None:
    bench = Bench()
    bench.join_new()
    bench.commit({T0: 1}, group_id="simple")
    bench.slow_disk = True
    bench.commit({T0: 2}, group_id="simple")
    bench.fetch([T0], require_stable=True, group_id="simple")
    gauges = bench.coordinator.gauges()
    assert gauges.groups_by_state == {
        "Empty": 1,
        "PreparingRebalance": 1,
        "CompletingRebalance": 0,
        "Stable": 0,
        "Dead": 0,
    }
    assert (gauges.members, gauges.offsets, gauges.parked_requests, gauges.writes_in_flight) == (1, 1, 2, 1)
