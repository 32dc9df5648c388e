"""The picture of the cluster, and how answers change it."""

from __future__ import annotations

from typing import Any

from millstream.client.cluster import BrokerInfo, Cluster
from millstream.errors import (
    ErrorCode,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = b"\1" * 16, b"\2" * 16


def partition(index: int, leader: int, epoch: int = -1, code: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )


def topic(
    name: str, *partitions: MetadataResponsePartition, code: int = 0, topic_id: bytes = ID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=list(partitions))


def response(
    *topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2), **fields: Any
) -> MetadataResponse:
    nodes = [
        MetadataResponseBroker(node_id=node, host=f"host{node}", port=9092, rack="r") for node in brokers
    ]
    return MetadataResponse(brokers=nodes, topics=list(topics), cluster_id="c", controller_id=2, **fields)


def cluster_with(*topics: MetadataResponseTopic) -> Cluster:
    return Cluster.empty().updated(response(*topics), requested=None)


def test_everything_of_an_answer_is_there() -> None:
    cluster = cluster_with(topic("a", partition(1, 2, 5), partition(0, 1, 4)))
    assert cluster.cluster_id == "c"
    assert cluster.controller == BrokerInfo(2, "host2", 9092, "r")
    found = cluster.partition("a", 1)
    assert found is not None
    assert (found.leader, found.leader_epoch, found.replicas, found.in_sync_replicas) == (2, 5, (1, 2), (1,))
    assert cluster.leader("a", 0) == BrokerInfo(1, "host1", 9092, "r")
    assert cluster.topics["a"].topic_id == ID
    assert cluster.partition("a", 2) is None
    assert cluster.partition("b", 0) is None


def test_topics_that_were_not_asked_for_stay() -> None:
    cluster = cluster_with(topic("a", partition(0, 1)), topic("b", partition(0, 1)))
    cluster = cluster.updated(response(topic("b", partition(0, 2))), requested=["b"])
    assert set(cluster.topics) == {"a", "b"}
    assert cluster.leader("b", 0) == cluster.brokers[2]


def test_topics_missing_from_an_answer_about_all_are_gone() -> None:
    cluster = cluster_with(topic("a", partition(0, 1)), topic("b", partition(0, 1)))
    cluster = cluster.updated(response(topic("b", partition(0, 1))), requested=None)
    assert set(cluster.topics) == {"b"}


def test_never_back_to_an_older_leader_epoch() -> None:
    cluster = cluster_with(topic("a", partition(0, 2, 7)))
    cluster = cluster.updated(response(topic("a", partition(0, 1, 6))), requested=["a"])
    assert cluster.leader("a", 0) == cluster.brokers[2]
    cluster = cluster.updated(response(topic("a", partition(0, 1, 8))), requested=["a"])
    assert cluster.leader("a", 0) == cluster.brokers[1]
    # A broker too old to tell epochs is believed.
    cluster = cluster.updated(response(topic("a", partition(0, 2))), requested=["a"])
    assert cluster.leader("a", 0) == cluster.brokers[2]


def test_a_topic_made_anew_starts_its_epochs_anew() -> None:
    cluster = cluster_with(topic("a", partition(0, 2, 7)))
    cluster = cluster.updated(response(topic("a", partition(0, 1, 0), topic_id=OTHER_ID)), requested=["a"])
    assert cluster.leader("a", 0) == cluster.brokers[1]


def test_partitions_without_a_leader() -> None:
    cluster = cluster_with(
        topic(
            "a", partition(0, -1, 3, ErrorCode.LEADER_NOT_AVAILABLE), partition(1, 9, 3), partition(2, 1, 3)
        )
    )
    assert cluster.leader("a", 0) is None
    assert cluster.leader("a", 1) is None  # broker 9 is in no list
    assert list(cluster.partitions_without_leader(["a", "b"])) == [
        TopicPartition("a", 0),
        TopicPartition("a", 1),
    ]


def test_errors_of_topics() -> None:
    known = cluster_with(
        topic("a", partition(0, 1)), topic("b", partition(0, 1)), topic("c", partition(0, 1))
    )
    cluster = known.updated(
        response(
            topic("a", code=ErrorCode.LEADER_NOT_AVAILABLE),
            topic("b", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            topic("c", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ),
        requested=["a", "b", "c"],
    )
    assert isinstance(cluster.errors["a"], LeaderNotAvailableError)
    assert isinstance(cluster.errors["b"], UnknownTopicOrPartitionError)
    assert isinstance(cluster.errors["c"], TopicAuthorizationFailedError)
    # What is expected back keeps what was known of it; what is gone does not.
    assert set(cluster.topics) == {"a"}
    cluster = cluster.updated(response(topic("a", partition(0, 1))), requested=["a"])
    assert "a" not in cluster.errors


def test_an_answer_without_brokers_keeps_those_that_are_known() -> None:
    cluster = cluster_with(topic("a", partition(0, 1)))
    cluster = cluster.updated(
        MetadataResponse(brokers=[], topics=[topic("b", partition(0, 1))]), requested=["b"]
    )
    assert set(cluster.brokers) == {1, 2}
    assert cluster.controller_id == 2
    assert set(cluster.topics) == {"a", "b"}


def test_newer_leaders_from_other_answers() -> None:
    cluster = cluster_with(topic("a", partition(0, 1, 3), partition(1, 1, 3)))
    changed = cluster.with_leaders(
        {TopicPartition("a", 0): (3, 4), TopicPartition("a", 1): (2, 3), TopicPartition("z", 0): (1, 1)},
        [BrokerInfo(3, "host3", 9092)],
    )
    assert changed.leader("a", 0) == BrokerInfo(3, "host3", 9092)
    assert changed.leader("a", 1) == cluster.brokers[1]  # not newer than what is known
    assert cluster.leader("a", 0) == cluster.brokers[1]  # snapshots do not change


def test_forgetting_topics() -> None:
    cluster = cluster_with(topic("a", partition(0, 1)), topic("b", code=ErrorCode.INVALID_TOPIC_EXCEPTION))
    assert not cluster.without_topics(["a", "b"]).topics
    assert not cluster.without_topics(["a", "b"]).errors


def test_what_has_not_changed_stays_the_same_object() -> None:
    before = cluster_with(topic("a", partition(0, 1, 4), partition(1, 2, 5)), topic("b", partition(0, 1, 4)))
    same = response(topic("a", partition(0, 1, 4), partition(1, 2, 5)), topic("b", partition(0, 1, 4)))
    assert before.updated(same, requested=None) is before
    assert before.updated(response(topic("b", partition(0, 1, 4))), requested=["b"]) is before
    moved = response(topic("a", partition(0, 1, 4), partition(1, 1, 6)), topic("b", partition(0, 1, 4)))
    after = before.updated(moved, requested=None)
    assert after.topic("b") is before.topic("b")
    assert after.partition("a", 0) is before.partition("a", 0)
    assert after.leader("a", 1) == BrokerInfo(1, "host1", 9092, "r")
    assert before.updated(response(topic("b", partition(0, 1, 4))), requested=None).topic("a") is None


def test_an_error_is_new_each_time() -> None:
    """Callers tell a further refusal from the last one by the object."""
    refused = response(topic("a", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    before = Cluster.empty().updated(refused, requested=["a"])
    after = before.updated(refused, requested=["a"])
    assert after is not before and after.errors["a"] is not before.errors["a"]
