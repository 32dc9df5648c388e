"""The table of permissions: what every API that the broker serves needs, as in Apache Kafka.

A test compares it with the APIs that are served: none is without a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.broker.access import groups, topics
from millstream.broker.access.rules import Asker, Free, Rule, Whole
from millstream.broker.request_context import RequestContext
from millstream.security.acls import Operation, ResourceType
from millstream.wire.messages import (
    acls,
    api_versions,
    cluster,
    configs,
    fetch,
    group_admin,
    group_offsets,
    log_dirs,
    metadata,
    offsets,
    produce,
    sasl,
)
from millstream.wire.messages import groups as group_messages
from millstream.wire.messages import topics as topic_messages
from millstream.wire.schema import Api, Response


def _cluster(operation: Operation, refusal: Callable[[Any, int, int], Response]) -> Whole:
    return Whole(operation, ResourceType.CLUSTER, refusal)


class _DescribedCluster:
    """Open to everyone; ``authorizedOperations`` is cut to what the principal may do."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        context.amend(lambda response: topics.cut_cluster_operations(response, asker))
        return None


def _refuse_elections(request: Any, version: int, error: int) -> Response:
    return cluster.ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            cluster.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    cluster.PartitionResult(partition_id=index, error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _refuse_reassignments(request: Any, version: int, error: int) -> Response:
    return cluster.AlterPartitionReassignmentsResponse(
        error_code=error,
        responses=[
            cluster.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    cluster.ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _refuse_log_dirs(request: Any, version: int, error: int) -> Response:
    return log_dirs.AlterReplicaLogDirsResponse(
        results=[
            log_dirs.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    log_dirs.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )


def _refuse_described_users(request: Any, version: int, error: int) -> Response:
    """One answer for each user, without the name, as in Kafka."""
    refused = sasl.DescribeUserScramCredentialsResult(user="", error_code=error, credential_infos=[])
    return sasl.DescribeUserScramCredentialsResponse(
        error_code=error, results=[refused for _ in request.users or ()]
    )


def _refuse_users(request: Any, version: int, error: int) -> Response:
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return sasl.AlterUserScramCredentialsResponse(
        results=[sasl.AlterUserScramCredentialsResult(user=name, error_code=error) for name in names]
    )


_READ, _DESCRIBE, _ALTER = Operation.READ, Operation.DESCRIBE, Operation.ALTER

TABLE: Final[dict[Api, tuple[Rule, ...]]] = {
    # records
    produce.PRODUCE: (topics.ProducedTopics(),),
    fetch.FETCH: (topics.FetchedTopics(),),
    produce.INIT_PRODUCER_ID: (topics.InitializedProducer(),),
    produce.DESCRIBE_PRODUCERS: (topics.DESCRIBED_PRODUCERS,),
    topic_messages.DELETE_RECORDS: (topics.DELETED_RECORDS,),
    offsets.LIST_OFFSETS: (topics.LISTED_OFFSETS,),
    offsets.OFFSET_FOR_LEADER_EPOCH: (topics.AskedEpochs(),),
    # topics
    metadata.METADATA: (topics.DescribedTopics(),),
    metadata.DESCRIBE_TOPIC_PARTITIONS: (topics.DescribedPartitions(),),
    topic_messages.CREATE_TOPICS: (topics.CreatedTopics(),),
    topic_messages.DELETE_TOPICS: (topics.DeletedTopics(),),
    topic_messages.CREATE_PARTITIONS: (topics.GROWN_TOPICS,),
    configs.DESCRIBE_CONFIGS: (topics.DESCRIBED_CONFIGS,),
    configs.ALTER_CONFIGS: (topics.ALTERED_CONFIGS,),
    configs.INCREMENTAL_ALTER_CONFIGS: (topics.INCREMENTALLY_ALTERED_CONFIGS,),
    # groups
    group_messages.FIND_COORDINATOR: (groups.FoundCoordinators(),),
    group_messages.JOIN_GROUP: (groups.of_group(_READ),),
    group_messages.SYNC_GROUP: (groups.of_group(_READ),),
    group_messages.HEARTBEAT: (groups.of_group(_READ),),
    group_messages.LEAVE_GROUP: (groups.of_group(_READ),),
    group_offsets.OFFSET_COMMIT: (groups.of_group(_READ), groups.COMMITTED_TOPICS),
    group_offsets.OFFSET_FETCH: (groups.FetchedOffsets(),),
    group_offsets.OFFSET_DELETE: (groups.of_group(Operation.DELETE), groups.DELETED_OFFSETS),
    group_admin.DESCRIBE_GROUPS: (groups.DescribedGroups(),),
    group_admin.LIST_GROUPS: (groups.ListedGroups(),),
    group_admin.DELETE_GROUPS: (groups.DELETED_GROUPS,),
    # the cluster
    metadata.DESCRIBE_CLUSTER: (_DescribedCluster(),),
    cluster.DESCRIBE_QUORUM: (
        _cluster(_DESCRIBE, lambda _, __, error: cluster.DescribeQuorumResponse(error_code=error, topics=[])),
    ),
    cluster.ELECT_LEADERS: (_cluster(_ALTER, _refuse_elections),),
    cluster.ALTER_PARTITION_REASSIGNMENTS: (_cluster(_ALTER, _refuse_reassignments),),
    cluster.LIST_PARTITION_REASSIGNMENTS: (
        _cluster(
            _DESCRIBE,
            lambda _, __, error: cluster.ListPartitionReassignmentsResponse(error_code=error, topics=[]),
        ),
    ),
    configs.LIST_CONFIG_RESOURCES: (
        _cluster(
            Operation.DESCRIBE_CONFIGS,
            lambda _, __, error: configs.ListConfigResourcesResponse(error_code=error, config_resources=[]),
        ),
    ),
    log_dirs.DESCRIBE_LOG_DIRS: (
        _cluster(
            _DESCRIBE, lambda _, __, error: log_dirs.DescribeLogDirsResponse(error_code=error, results=[])
        ),
    ),
    log_dirs.ALTER_REPLICA_LOG_DIRS: (_cluster(_ALTER, _refuse_log_dirs),),
    acls.DESCRIBE_ACLS: (
        _cluster(_DESCRIBE, lambda _, __, error: acls.DescribeAclsResponse(error_code=error, resources=[])),
    ),
    acls.CREATE_ACLS: (
        _cluster(
            _ALTER,
            lambda request, _, error: acls.CreateAclsResponse(
                results=[acls.AclCreationResult(error_code=error) for _ in request.creations]
            ),
        ),
    ),
    acls.DELETE_ACLS: (
        _cluster(
            _ALTER,
            lambda request, _, error: acls.DeleteAclsResponse(
                filter_results=[
                    acls.DeleteAclsFilterResult(error_code=error, matching_acls=[]) for _ in request.filters
                ]
            ),
        ),
    ),
    acls.DESCRIBE_CLIENT_QUOTAS: (
        _cluster(
            Operation.DESCRIBE_CONFIGS,
            lambda _, __, error: acls.DescribeClientQuotasResponse(error_code=error, entries=None),
        ),
    ),
    acls.ALTER_CLIENT_QUOTAS: (
        _cluster(
            Operation.ALTER_CONFIGS,
            lambda request, _, error: acls.AlterClientQuotasResponse(
                entries=[
                    acls.AlteredQuotaResult(error_code=error, entity=each.entity) for each in request.entries
                ]
            ),
        ),
    ),
    sasl.DESCRIBE_USER_SCRAM_CREDENTIALS: (_cluster(_DESCRIBE, _refuse_described_users),),
    sasl.ALTER_USER_SCRAM_CREDENTIALS: (_cluster(_ALTER, _refuse_users),),
    # before anyone is known
    api_versions.API_VERSIONS: (Free(),),
    sasl.SASL_HANDSHAKE: (Free(),),
    sasl.SASL_AUTHENTICATE: (Free(),),
}
