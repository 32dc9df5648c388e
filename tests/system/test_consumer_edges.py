"""Edges that Kafka's own tests know: no group rights, pauses over rebalances, the longest poll interval."""

from __future__ import annotations

import pytest

from millstream import Consumer, Producer, TopicPartition
from tests.conftest import NewTopic
from tests.system.members import QUICK, poll_until, read
from tests.waiting import SECONDS


@pytest.fixture
def topic(new_topic: NewTopic, producer: Producer) -> str:
    topic = new_topic()
    for number in range(3):
        producer.send(topic, b"%d" % number).result(SECONDS)
    return topic


def test_assigned_and_sought_partitions_need_no_coordinator(
    bootstrap_servers: str, topic: str, group: str
) -> None:
    """Such a consumer may have no rights in the group that its settings name."""
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1)
        assert [record.value for record in read(consumer, 2)] == [b"1", b"2"]
        assert consumer.lag(TopicPartition(topic, 0)) == 0
        asked = [name for name in consumer.metrics() if "FindCoordinator" in name or "OffsetFetch" in name]
        assert asked == []
        consumer.commit()
        assert consumer.metrics()["request_latency_ms.FindCoordinator.count"] >= 1, "a commit needs it"


@pytest.mark.parametrize(("assignor", "stays"), [("range", False), ("cooperative-sticky", True)])
def test_a_pause_ends_with_the_partition_it_is_for(
    bootstrap_servers: str, topic: str, group: str, assignor: str, stays: bool
) -> None:
    """As in Kafka: an eager rebalance revokes all partitions, and what is assigned again is not paused."""
    partition = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        partition_assignment_strategy=assignor,
        **QUICK,
    ) as consumer:
        consumer.subscribe([topic])
        read(consumer, 3)
        consumer.seek(partition, 0)
        consumer.pause(partition)
        before = consumer.group_metadata().generation_id
        consumer.enforce_rebalance()
        if stays:
            poll_until(consumer, lambda: consumer.group_metadata().generation_id > before, "the rebalance")
            poll_until(consumer, lambda: consumer.assignment() == {partition}, "the assignment")
            assert consumer.paused() == {partition}
            consumer.resume(partition)
        assert len(read(consumer, 3)) == 3, "it starts where the automatic commit says, before all"
        assert consumer.paused() == frozenset()
        assert consumer.group_metadata().generation_id == before + 1


def test_the_longest_poll_interval(bootstrap_servers: str, topic: str, group: str) -> None:
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=group, max_poll_interval_ms=2**31 - 1, **QUICK
    ) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, 3)) == 3
        consumer.commit()
        generation = consumer.group_metadata().generation_id
        consumer.enforce_rebalance()
        poll_until(consumer, lambda: consumer.group_metadata().generation_id > generation, "the rebalance")
        assert consumer.assignment() == {TopicPartition(topic, 0)}
