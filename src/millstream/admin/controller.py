"""What the controller decides: leaders of partitions, features of the cluster, and its own quorum."""

from __future__ import annotations

from collections.abc import Mapping

from millstream import __version__
from millstream.admin.call import AdminCall, Outcome, Partitions, by_topic, outcome_of
from millstream.admin.values import Features, QuorumDescription, QuorumReplica
from millstream.client.targets import AnyNode, Controller
from millstream.errors import ErrorCode, UnsupportedVersionError, raise_for_code
from millstream.model import TopicPartition
from millstream.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
    TopicPartitions,
)
from millstream.wire.versions import Negotiation

_PREFERRED, _UNCLEAN = 0, 1
_FEATURES_VERSION = 3
_QUORUM = [QuorumTopic(topic_name="__cluster_metadata", partitions=[QuorumPartition(partition_index=0)])]


def elect_leaders(call: AdminCall, partitions: Partitions | None, *, unclean: bool) -> list[TopicPartition]:
    """Elect leaders of these partitions, or of all; return the partitions that have a new one."""
    topics = call.metadata(None).topics.values() if partitions is None else ()
    wanted = [one.topic_partition for topic in topics for one in topic.partitions]
    if partitions is not None:
        wanted = call.partitions(partitions)

    def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[bool]]:
        grouped = by_topic((one, one.partition) for one in left).items()
        request = ElectLeadersRequest(
            election_type=_UNCLEAN if unclean else _PREFERRED,
            topic_partitions=[TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in grouped],
            timeout_ms=call.deadline.remaining_ms,
        )
        return {
            (partition := TopicPartition(topic.topic, result.partition_id)): (
                False  # the right one leads already
                if result.error_code == ErrorCode.ELECTION_NOT_NEEDED
                else outcome_of(True, result.error_code, f"{partition}", result.error_message)
            )
            for topic in call.send(
                Controller(), ElectLeadersResponse, request, check
            ).replica_election_results
            for result in topic.partition_result
        }

    def check(response: ElectLeadersResponse) -> None:
        raise_for_code(response.error_code, "electing leaders")

    return [partition for partition, is_new in call.each(wanted, ask).items() if is_new] if wanted else []


def describe_features(call: AdminCall) -> Features:
    """The features of the cluster, as one of its brokers knows them."""

    def build(version: int) -> ApiVersionsRequest:
        if version < _FEATURES_VERSION:
            raise UnsupportedVersionError("the broker names no features: it needs Kafka 2.7 or later")
        return Negotiation(__version__).request()

    def check(response: ApiVersionsResponse) -> None:
        raise_for_code(response.error_code, "describing features")

    found = call.send(AnyNode(), ApiVersionsResponse, build, check)
    return Features(
        finalized={each.name: each.max_version_level for each in found.finalized_features},
        supported={each.name: (each.min_version, each.max_version) for each in found.supported_features},
        epoch=found.finalized_features_epoch,
    )


def describe_quorum(call: AdminCall) -> QuorumDescription:
    """The quorum of controllers, as its leader knows it."""

    def check(response: DescribeQuorumResponse) -> None:
        raise_for_code(response.error_code, response.error_message or "describing the quorum")
        state = response.topics[0].partitions[0]
        raise_for_code(state.error_code, state.error_message or "describing the quorum")

    response = call.send(AnyNode(), DescribeQuorumResponse, DescribeQuorumRequest(topics=_QUORUM), check)
    state = response.topics[0].partitions[0]
    return QuorumDescription(
        state.leader_id,
        state.leader_epoch,
        state.high_watermark,
        tuple(map(_replica, state.current_voters)),
        tuple(map(_replica, state.observers)),
    )


def _replica(replica: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        replica.replica_id,
        replica.log_end_offset,
        replica.last_fetch_timestamp,
        replica.last_caught_up_timestamp,
    )
