"""The APIs that millstream speaks: one line each, the single place where keys and versions are written down.

The versions are those of Apache Kafka 4.1. A broker offers all of them; a client uses the highest that both
sides know. The classes live in ``messages`` and are imported when an API is first used.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.wire.schema import Request, Response

NEVER: Final = 0x7FFF
"""The first flexible version of an API that has none."""


@dataclass(frozen=True)  # without slots, for the cached properties
class Api:
    """One API: its number and name, the module of its messages, its versions, and its first flexible one."""

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    flexible: int

    @cached_property
    def request_type(self) -> type[Request]:
        request: type[Request] = self._message("Request")
        return request

    @cached_property
    def response_type(self) -> type[Response]:
        response: type[Response] = self._message("Response")
        return response

    def _message(self, suffix: str) -> Any:
        module = importlib.import_module(f"millstream.wire.messages.{self.module}")
        return getattr(module, self.name + suffix)


PRODUCE: Final = Api(0, "Produce", "produce", 3, 13, 9)
FETCH: Final = Api(1, "Fetch", "fetch", 4, 18, 12)
LIST_OFFSETS: Final = Api(2, "ListOffsets", "offsets", 1, 10, 6)
METADATA: Final = Api(3, "Metadata", "metadata", 0, 13, 9)
OFFSET_COMMIT: Final = Api(8, "OffsetCommit", "group_offsets", 2, 9, 8)
OFFSET_FETCH: Final = Api(9, "OffsetFetch", "group_offsets", 1, 9, 6)
FIND_COORDINATOR: Final = Api(10, "FindCoordinator", "groups", 0, 6, 3)
JOIN_GROUP: Final = Api(11, "JoinGroup", "groups", 0, 9, 6)
HEARTBEAT: Final = Api(12, "Heartbeat", "groups", 0, 4, 4)
LEAVE_GROUP: Final = Api(13, "LeaveGroup", "groups", 0, 5, 4)
SYNC_GROUP: Final = Api(14, "SyncGroup", "groups", 0, 5, 4)
DESCRIBE_GROUPS: Final = Api(15, "DescribeGroups", "group_admin", 0, 6, 5)
LIST_GROUPS: Final = Api(16, "ListGroups", "group_admin", 0, 5, 3)
SASL_HANDSHAKE: Final = Api(17, "SaslHandshake", "sasl", 0, 1, NEVER)
API_VERSIONS: Final = Api(18, "ApiVersions", "api_versions", 0, 4, 3)
CREATE_TOPICS: Final = Api(19, "CreateTopics", "topics", 2, 7, 5)
DELETE_TOPICS: Final = Api(20, "DeleteTopics", "topics", 1, 6, 4)
DELETE_RECORDS: Final = Api(21, "DeleteRecords", "topics", 0, 2, 2)
INIT_PRODUCER_ID: Final = Api(22, "InitProducerId", "produce", 0, 5, 2)
OFFSET_FOR_LEADER_EPOCH: Final = Api(23, "OffsetForLeaderEpoch", "offsets", 2, 4, 4)
DESCRIBE_CONFIGS: Final = Api(32, "DescribeConfigs", "configs", 1, 4, 4)
ALTER_CONFIGS: Final = Api(33, "AlterConfigs", "configs", 0, 2, 2)
ALTER_REPLICA_LOG_DIRS: Final = Api(34, "AlterReplicaLogDirs", "log_dirs", 1, 2, 2)
DESCRIBE_LOG_DIRS: Final = Api(35, "DescribeLogDirs", "log_dirs", 1, 4, 2)
SASL_AUTHENTICATE: Final = Api(36, "SaslAuthenticate", "sasl", 0, 2, 2)
CREATE_PARTITIONS: Final = Api(37, "CreatePartitions", "topics", 0, 3, 2)
DELETE_GROUPS: Final = Api(42, "DeleteGroups", "group_admin", 0, 2, 2)
ELECT_LEADERS: Final = Api(43, "ElectLeaders", "cluster", 0, 2, 2)
INCREMENTAL_ALTER_CONFIGS: Final = Api(44, "IncrementalAlterConfigs", "configs", 0, 1, 1)
ALTER_PARTITION_REASSIGNMENTS: Final = Api(45, "AlterPartitionReassignments", "cluster", 0, 1, 0)
LIST_PARTITION_REASSIGNMENTS: Final = Api(46, "ListPartitionReassignments", "cluster", 0, 0, 0)
OFFSET_DELETE: Final = Api(47, "OffsetDelete", "group_offsets", 0, 0, NEVER)
DESCRIBE_QUORUM: Final = Api(55, "DescribeQuorum", "cluster", 0, 2, 0)
DESCRIBE_CLUSTER: Final = Api(60, "DescribeCluster", "metadata", 0, 2, 0)
DESCRIBE_TOPIC_PARTITIONS: Final = Api(75, "DescribeTopicPartitions", "metadata", 0, 0, 0)

APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        ALTER_REPLICA_LOG_DIRS,
        DESCRIBE_LOG_DIRS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        ELECT_LEADERS,
        INCREMENTAL_ALTER_CONFIGS,
        ALTER_PARTITION_REASSIGNMENTS,
        LIST_PARTITION_REASSIGNMENTS,
        OFFSET_DELETE,
        DESCRIBE_QUORUM,
        DESCRIBE_CLUSTER,
        DESCRIBE_TOPIC_PARTITIONS,
    )
}
"""Every API by its number."""
