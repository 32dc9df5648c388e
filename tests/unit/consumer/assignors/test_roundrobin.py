"""RoundRobin: partitions dealt one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumer.assignors import ClusterView, RoundRobinAssignor, Subscription
from tests.unit.consumer.assignors.groups import check_complete, clusters, groups, loads, members, outcome


def test_two_members_and_two_topics_of_three_partitions() -> None:
    cluster = ClusterView.of({"t0": 3, "t1": 3})
    assert outcome(RoundRobinAssignor(), cluster, members(c0="t0 t1", c1="t0 t1")) == {
        "c0": "t0-0 t0-2 t1-1",
        "c1": "t0-1 t1-0 t1-2",
    }


def test_members_that_do_not_want_a_topic_are_passed_over() -> None:
    cluster = ClusterView.of({"t0": 1, "t1": 2, "t2": 3})
    assert outcome(RoundRobinAssignor(), cluster, members(c0="t0", c1="t0 t1", c2="t0 t1 t2")) == {
        "c0": "t0-0",
        "c1": "t1-0",
        "c2": "t1-1 t2-0 t2-1 t2-2",
    }


def test_static_members_come_first_by_instance_id() -> None:
    group = {
        "a": Subscription(("t",)),
        "z": Subscription(("t",), group_instance_id="i1"),
        "y": Subscription(("t",), group_instance_id="i2"),
    }
    cluster = ClusterView.of({"t": 4})
    assert outcome(RoundRobinAssignor(), cluster, group) == {"z": "t-0 t-3", "y": "t-1", "a": "t-2"}


def test_a_group_that_wants_nothing_that_exists_gets_nothing() -> None:
    assert outcome(RoundRobinAssignor(), ClusterView.of({}), members(c0="t", c1="")) == {"c0": "", "c1": ""}
    assert RoundRobinAssignor().assign(ClusterView.of({"t": 1}), {}) == {}


@settings(deadline=None)
@given(st.data())
def test_everything_is_dealt_and_equal_subscribers_get_equal_shares(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    equal = data.draw(st.booleans())
    group = data.draw(groups(cluster, equal))
    result = RoundRobinAssignor().assign(cluster, group)
    check_complete(cluster, group, result)
    if equal:
        assert loads(result)[-1] - loads(result)[0] <= 1
