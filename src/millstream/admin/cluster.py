"""The cluster, and the log directories of its brokers."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.admin.call import AdminCall, Outcome, outcome_of
from millstream.admin.values import ClusterDescription, LogDirDescription, ReplicaSize
from millstream.client.cluster import BrokerInfo
from millstream.client.targets import AnyNode, Node
from millstream.errors import MillstreamError, raise_for_code
from millstream.wire.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from millstream.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse


def describe_cluster(call: AdminCall) -> ClusterDescription:
    """The cluster's id, its brokers and its controller."""

    def check(response: DescribeClusterResponse) -> None:
        raise_for_code(response.error_code, response.error_message or "describing the cluster")

    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    response = call.send(AnyNode(), DescribeClusterResponse, request, check)
    brokers = {
        one.broker_id: BrokerInfo(one.broker_id, one.host, one.port, one.rack) for one in response.brokers
    }
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller=brokers.get(response.controller_id),
        brokers=tuple(brokers[broker_id] for broker_id in sorted(brokers)),
    )


def describe_log_dirs(call: AdminCall, brokers: int | Iterable[int] | None) -> list[LogDirDescription]:
    """The log directories of these brokers, or of all."""
    known = call.metadata(()).brokers
    wanted = sorted(known) if brokers is None else [brokers] if isinstance(brokers, int) else list(brokers)
    found = call.each(wanted, lambda nodes: {node_id: _log_dirs_of(call, node_id) for node_id in nodes})
    return [one for directories in found.values() for one in directories]


def _log_dirs_of(call: AdminCall, node_id: int) -> Outcome[list[LogDirDescription]]:
    response = call.send(Node(node_id), DescribeLogDirsResponse, DescribeLogDirsRequest(topics=None))
    found: list[LogDirDescription] = []
    for result in response.results:
        outcome = outcome_of(
            _log_dir(node_id, result), result.error_code, f"{result.log_dir} of broker {node_id}"
        )
        if isinstance(outcome, MillstreamError):
            return outcome
        found.append(outcome)
    return outcome_of(found, response.error_code, f"the log directories of broker {node_id}")


def _log_dir(node_id: int, result: DescribeLogDirsResult) -> LogDirDescription:
    replicas = tuple(
        ReplicaSize(topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in result.topics
        for one in topic.partitions
    )
    return LogDirDescription(node_id, result.log_dir, replicas, result.total_bytes, result.usable_bytes)
