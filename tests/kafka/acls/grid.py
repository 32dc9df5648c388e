"""Generated rules, and the requests of every API that rules decide about. None of them changes what is there.

A request names things that exist and things that do not, so that one answer has items of every kind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from millstream.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.kafka.differential.values import API_BY_NAME, Step

USERS: Final = ("ann", "bob", "carl")
TOPICS: Final = ("a", "ab", "b")
GROUPS: Final = ("g", "ga")
_NAMED_TOPICS: Final = (*TOPICS, "ghost")
_NAMED_GROUPS: Final = (*GROUPS, "gone")
_TRANSACTIONAL_IDS: Final = ("tx", "txa")
_NAMES: Final = {
    ResourceType.TOPIC: (*TOPICS, "*", "g", "ghost"),
    ResourceType.GROUP: (*GROUPS, "*", "gone"),
    ResourceType.CLUSTER: ("kafka-cluster",),
    ResourceType.TRANSACTIONAL_ID: (*_TRANSACTIONAL_IDS, "*"),
}
_OPERATIONS: Final = {
    ResourceType.TOPIC: "ALL READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "ALL READ DELETE DESCRIBE",
    ResourceType.CLUSTER: "ALL CREATE DELETE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE "
    "ALTER DESCRIBE",
    ResourceType.TRANSACTIONAL_ID: "ALL DESCRIBE WRITE",
}
_TOPIC, _BROKER = 2, 4
_FIRST: Final = {"Metadata": 1, "JoinGroup": 4, "LeaveGroup": 3, "OffsetFetch": 8, "FindCoordinator": 4}
"""Earlier versions name one thing only, or join for good at once."""


def make_rules(rng: random.Random) -> list[Acl]:
    """Rules of all kinds for the users, most of which allow something."""
    return sorted({_rule(rng) for _ in range(rng.choice((2, 6, 12, 24)))})


def _rule(rng: random.Random) -> Acl:
    kind = rng.choices(tuple(_NAMES), (5, 3, 3, 1))[0]
    is_prefix = kind is not ResourceType.CLUSTER and rng.random() < 0.3
    return Acl(
        kind,
        rng.choice([name for name in _NAMES[kind] if not (is_prefix and name == "*")]),
        rng.choices(("User:ann", "User:bob", "User:carl", "User:*"), (4, 4, 4, 1))[0],
        Operation[rng.choice(_OPERATIONS[kind].split())],
        rng.choices((Permission.ALLOW, Permission.DENY), (4, 1))[0],
        rng.choices(("*", "127.0.0.1", "10.0.0.1"), (6, 2, 1))[0],
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
    )


def make_requests(rng: random.Random) -> list[Step]:
    """One request, or a few, of every API; in a version that names things."""
    return [
        Step(api, _version(rng, api), fields)
        for family in (_records, _topics, _groups, _cluster, _rules)
        for api, fields in family()
    ]


def _version(rng: random.Random, api: str) -> int:
    of = API_BY_NAME[api]
    return rng.randint(_FIRST.get(api, of.min_version), of.max_version)


def is_of_transactions(step: Step) -> bool:
    """Whether the embedded broker answers those who may otherwise: it has no transactions."""
    return "transactional_id" in step.fields or step.fields.get("key_type") == 1


Requests = Iterator[tuple[str, dict[str, Any]]]


def _each(names: tuple[str, ...], partitions: str, partition: object, key: str = "name") -> list[Any]:
    return [{key: name, partitions: [partition]} for name in names]


def _identified(topics: list[Any], key: str = "name") -> list[Any]:
    """The same with the topics' ids, which later versions send in place of the names."""
    return [{**each, "topic_id": f"$topic:{each[key]}"} for each in topics]


def _records() -> Requests:
    data = {"index": 0, "records": [{"values": ["v"]}]}
    written = _identified(_each(_NAMED_TOPICS, "partition_data", data))
    yield "Produce", {"acks": -1, "timeout_ms": 10_000, "topic_data": written}
    for is_transactional in (True, False):  # Kafka looks at the records as well
        batch = {"values": ["v"], "producer": 7, "epoch": 0, "sequence": 0, "transactional": is_transactional}
        data = {"index": 0, "records": [batch]}
        written = _identified(_each(_NAMED_TOPICS, "partition_data", data))
        sent = {"acks": -1, "timeout_ms": 10_000, "topic_data": written}
        for transaction in (*_TRANSACTIONAL_IDS, None)[: 3 if is_transactional else 2]:
            yield "Produce", {**sent, "transactional_id": transaction}
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1024}
    limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    yield (
        "Fetch",
        {**limits, "topics": _identified(_each(_NAMED_TOPICS, "partitions", wanted, "topic"), "topic")},
    )
    asked = {"partition_index": 0, "timestamp": -2}
    yield "ListOffsets", {"replica_id": -1, "topics": _each(_NAMED_TOPICS, "partitions", asked)}
    epoch = {"partition": 0, "leader_epoch": 0}
    yield "OffsetForLeaderEpoch", {"topics": _each(_NAMED_TOPICS, "partitions", epoch, "topic")}
    first = {"partition_index": 0, "offset": 0}
    yield "DeleteRecords", {"timeout_ms": 10_000, "topics": _each(_NAMED_TOPICS, "partitions", first)}
    yield "DescribeProducers", {"topics": _each(_NAMED_TOPICS, "partition_indexes", 0)}
    for transaction in (None, *_TRANSACTIONAL_IDS):
        yield "InitProducerId", {"transactional_id": transaction, "transaction_timeout_ms": 10_000}


def _topics() -> Requests:
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    named = [{"name": name} for name in _NAMED_TOPICS]
    for topics in (None, named):
        yield "Metadata", {"topics": topics, "allow_auto_topic_creation": False, **operations}
    for names in ((), _NAMED_TOPICS):
        yield "DescribeTopicPartitions", {"topics": [{"name": name} for name in names]}
    new = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    made = [{"name": name, **new} for name in ("ghost", "abx", "b")]
    yield "CreateTopics", {"topics": made, "timeout_ms": 10_000, "validate_only": True}
    # By id only one that is not there: whoever may delete it would.
    gone = [{"name": "ghost"}, {"name": None, "topic_id": "$topic:ghost"}]
    yield "DeleteTopics", {"topic_names": ["ghost"], "topics": gone, "timeout_ms": 10_000}
    more = [{"name": name, "count": 5, "assignments": None} for name in _NAMED_TOPICS]
    yield "CreatePartitions", {"topics": more, "timeout_ms": 10_000, "validate_only": True}
    resources: list[dict[str, Any]] = [
        {"resource_type": _TOPIC, "resource_name": name} for name in _NAMED_TOPICS
    ]
    described = [*resources, {"resource_type": _BROKER, "resource_name": "1"}]
    keys: dict[str, Any] = {"configuration_keys": ["retention.ms"]}
    yield "DescribeConfigs", {"resources": [{**each, **keys} for each in described]}
    change = {"name": "retention.ms", "value": "1000"}
    altered = [{**each, "configs": [change]} for each in resources]
    yield "AlterConfigs", {"resources": altered, "validate_only": True}
    changed = [{**each, "configs": [{**change, "config_operation": 0}]} for each in resources]
    yield "IncrementalAlterConfigs", {"resources": changed, "validate_only": True}
    yield "ListConfigResources", {"resource_types": [_TOPIC]}


def _groups() -> Requests:
    for group in _NAMED_GROUPS:
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        member = {"group_id": group, "member_id": ""}
        yield "OffsetCommit", {**member, "topics": _identified(_each(_NAMED_TOPICS, "partitions", offset))}
        yield (
            "OffsetDelete",
            {"group_id": group, "topics": _each(("ghost",), "partitions", {"partition_index": 0})},
        )
        joined = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer"}
        yield "JoinGroup", {**member, **joined, "protocols": [{"name": "range", "metadata": ""}]}
        stranger = {"group_id": group, "generation_id": 1, "member_id": "stranger"}
        # Without a protocol Kafka calls the request inconsistent before it looks at who asks.
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        yield "SyncGroup", {**stranger, **protocol, "assignments": []}
        yield "Heartbeat", stranger
        yield "LeaveGroup", {"group_id": group, "members": [{"member_id": "stranger"}]}
    for topics in (None, _identified(_each(_NAMED_TOPICS, "partition_indexes", 0))):
        yield "OffsetFetch", {"groups": [{"group_id": group, "topics": topics} for group in _NAMED_GROUPS]}
    yield "FindCoordinator", {"key_type": 0, "coordinator_keys": list(_NAMED_GROUPS)}
    yield "FindCoordinator", {"key_type": 1, "coordinator_keys": list(_TRANSACTIONAL_IDS)}
    yield "DescribeGroups", {"groups": list(_NAMED_GROUPS), "include_authorized_operations": True}
    yield "ListGroups", {}
    yield "DeleteGroups", {"groups_names": ["gone"]}


def _cluster() -> Requests:
    yield "DescribeCluster", {"include_cluster_authorized_operations": True}
    yield (
        "DescribeQuorum",
        {"topics": _each(("__cluster_metadata",), "partitions", {"partition_index": 0}, "topic_name")},
    )
    yield "DescribeLogDirs", {"topics": None}
    yield "ElectLeaders", {"topic_partitions": _each(_NAMED_TOPICS, "partitions", 0, "topic")}
    cancelled = {"partition_index": 0, "replicas": None}
    yield "AlterPartitionReassignments", {"topics": _each(("a",), "partitions", cancelled)}
    yield "ListPartitionReassignments", {"topics": None}
    yield "AlterReplicaLogDirs", {"dirs": [{"path": "/nowhere", "topics": _each(("a",), "partitions", 0)}]}


def _rules() -> Requests:
    everything = {
        **{f"{name}_filter": None for name in ("resource_name", "principal", "host")},
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    }
    yield "DescribeAcls", everything
    yield "DeleteAcls", {"filters": [{**everything, "principal_filter": "User:no one"}]}
    rule = {"resource_type": _TOPIC, "resource_name": "x", "principal": "User:zoe", "host": "*"}
    yield "CreateAcls", {"creations": [{**rule, "operation": 3, "permission_type": 3}]}
    # Kafka does not answer those who may not and name no user: it fails on the missing list.
    yield "DescribeUserScramCredentials", {"users": [{"name": "no-one"}]}
    gone = {"name": "no-one", "mechanism": 1}
    yield "AlterUserScramCredentials", {"deletions": [gone], "upsertions": []}
