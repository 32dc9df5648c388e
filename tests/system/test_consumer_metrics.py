"""What metrics() shows, and rebalances that a user asks for."""

from __future__ import annotations

import pytest

from millstream import Consumer, Producer, RebalanceListener, TopicPartition
from millstream.errors import MisuseError
from tests.conftest import NewTopic
from tests.system.members import QUICK, Member, poll_until, read
from tests.waiting import until


def test_lag_polls_commits_and_rebalances(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    for partition, count in ((0, 10), (1, 4)):
        for _ in range(count):
            producer.send(topic, b"v", partition=partition).result()
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False, **QUICK
    ) as consumer:
        before = consumer.metrics()
        assert before["last_poll_seconds_ago"] == before["last_heartbeat_seconds_ago"] == -1
        assert before["records_lag_max"] == before["rebalance_total"] == before["commit_total"] == 0
        consumer.subscribe([topic])
        read(consumer, 14)
        until(lambda: consumer.poll(0.1) or consumer.metrics()["heartbeat_total"] > 0, "a heartbeat")
        consumer.commit()
        consumer.seek(TopicPartition(topic, 0), 7)
        found = consumer.metrics()
    assert found["records_consumed_total"] == 14
    assert found["records_lag_max"] == found[f"records_lag.{topic}-0"] == 3
    assert found[f"records_lag.{topic}-1"] == 0
    assert found["assigned_partitions"] == 2
    assert found["commit_total"] == found["rebalance_total"] == 1
    assert found["failed_rebalance_total"] == 0
    assert found["commit_latency_max"] >= found["commit_latency_avg"] >= 0
    assert (
        found["rebalance_latency_max"] == found["rebalance_latency_avg"] == found["rebalance_latency_total"]
    )
    assert 0 < found["commit_rate"] <= 1 / 30
    assert 0 < found["poll_idle_ratio_avg"] <= 1
    assert found["time_between_poll_max"] >= found["time_between_poll_avg"] > 0
    for ago in ("last_poll_seconds_ago", "last_heartbeat_seconds_ago", "last_rebalance_seconds_ago"):
        assert 0 <= found[ago] < 300
    assert all(isinstance(value, int | float) for value in found.values())


class Counting(RebalanceListener):
    def __init__(self) -> None:
        self.assigned: list[int] = []

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append(len(partitions))


def test_a_user_enforces_a_rebalance(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    topic, listener = new_topic(partitions=2), Counting()
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        partition_assignment_strategy="range",
        **QUICK,
    ) as leader:
        leader.subscribe([topic], listener=listener)
        poll_until(leader, lambda: listener.assigned, "it reads")
        with Member(bootstrap_servers, group, [topic], partition_assignment_strategy="range") as other:
            poll_until(leader, lambda: len(other.owned) == 1 == len(leader.assignment()), "both share")
            before = leader.group_metadata().generation_id
            rebalances = len(listener.assigned)
            leader.enforce_rebalance("the weights have changed")
            assert leader.group_metadata().generation_id == before, "only in the next poll"
            leader.enforce_rebalance()
            poll_until(leader, lambda: len(listener.assigned) > rebalances, "the rebalance")
            assert leader.group_metadata().generation_id == before + 1, "one, not two"
            assert len(leader.assignment()) == 1
            until(lambda: len(other.owned) == 1, "the other has taken part")


def test_who_cannot_enforce_one(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        with pytest.raises(MisuseError, match="call subscribe"):
            consumer.enforce_rebalance()
        consumer.assign([TopicPartition(new_topic(), 0)])
        with pytest.raises(MisuseError, match="call subscribe"):
            consumer.enforce_rebalance()
