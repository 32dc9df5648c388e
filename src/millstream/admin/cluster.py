"""The cluster as a whole, and the disks of its brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.admin.session import AdminSession, Outcome, error_of
from millstream.admin.values import ClusterDescription, LogDirDescription, ReplicaSize
from millstream.client.blocking import Deadline
from millstream.client.cluster import BrokerInfo
from millstream.client.targets import AnyNode, Node
from millstream.errors import raise_for_code
from millstream.wire.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from millstream.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse


class ClusterAdmin(AdminSession):
    """The calls about the cluster."""

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers and its controller."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)

        def check(response: DescribeClusterResponse) -> None:
            raise_for_code(response.error_code, response.error_message or "describing the cluster")

        response = self._calls.call(
            AnyNode(), DescribeClusterResponse, lambda version: request, self._deadline(timeout), check
        )
        brokers = {
            one.broker_id: BrokerInfo(one.broker_id, one.host, one.port, one.rack) for one in response.brokers
        }
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller=brokers.get(response.controller_id),
            brokers=tuple(brokers[broker_id] for broker_id in sorted(brokers)),
        )

    def describe_log_dirs(
        self, brokers: int | Iterable[int] | None = None, *, timeout: float | None = None
    ) -> list[LogDirDescription]:
        """The data directories of these brokers, or of all, with the size of each partition in them."""
        deadline = self._deadline(timeout)
        known = self._calls.refresh_metadata((), deadline).brokers
        wanted = (
            sorted(known) if brokers is None else [brokers] if isinstance(brokers, int) else list(brokers)
        )

        def ask(nodes: list[int]) -> Mapping[int, Outcome[list[LogDirDescription]]]:
            return {node_id: self._log_dirs_of(node_id, deadline) for node_id in nodes}

        return [one for found in self._each(wanted, deadline, ask).values() for one in found]

    def _log_dirs_of(self, node_id: int, deadline: Deadline) -> Outcome[list[LogDirDescription]]:
        request = DescribeLogDirsRequest(topics=None)
        response = self._calls.call(Node(node_id), DescribeLogDirsResponse, lambda version: request, deadline)
        if response.error_code:
            return error_of(response.error_code, f"the log directories of broker {node_id}")
        found = []
        for result in response.results:
            if result.error_code:
                return error_of(result.error_code, f"{result.log_dir} of broker {node_id}")
            replicas = tuple(
                ReplicaSize(
                    topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key
                )
                for topic in result.topics
                for one in topic.partitions
            )
            found.append(
                LogDirDescription(node_id, result.log_dir, replicas, result.total_bytes, result.usable_bytes)
            )
        return found
