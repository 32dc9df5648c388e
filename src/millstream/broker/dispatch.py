"""Which handler answers which API. A family's module is imported when its first request comes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from millstream.wire import apis

Handler = Callable[[Any, Any, Any], Any]

_HANDLERS: Final[dict[int, tuple[str, str]]] = {
    apis.PRODUCE.key: ("produce", "handle_produce"),
    apis.INIT_PRODUCER_ID.key: ("produce", "handle_init_producer_id"),
    apis.FETCH.key: ("fetch", "handle_fetch"),
    apis.LIST_OFFSETS.key: ("offsets", "handle_list_offsets"),
    apis.OFFSET_FOR_LEADER_EPOCH.key: ("offsets", "handle_offset_for_leader_epoch"),
    apis.API_VERSIONS.key: ("api_versions", "handle_api_versions"),
    apis.METADATA.key: ("metadata", "handle_metadata"),
    apis.DESCRIBE_CLUSTER.key: ("metadata", "handle_describe_cluster"),
    apis.DESCRIBE_TOPIC_PARTITIONS.key: ("metadata", "handle_describe_topic_partitions"),
    apis.CREATE_TOPICS.key: ("topics", "handle_create_topics"),
    apis.DELETE_TOPICS.key: ("topics", "handle_delete_topics"),
    apis.CREATE_PARTITIONS.key: ("topics", "handle_create_partitions"),
    apis.DELETE_RECORDS.key: ("topics", "handle_delete_records"),
    apis.DESCRIBE_CONFIGS.key: ("configs", "handle_describe_configs"),
    apis.ALTER_CONFIGS.key: ("configs", "handle_alter_configs"),
    apis.INCREMENTAL_ALTER_CONFIGS.key: ("configs", "handle_incremental_alter_configs"),
    apis.FIND_COORDINATOR.key: ("groups", "handle_find_coordinator"),
    apis.JOIN_GROUP.key: ("groups", "handle_group_request"),
    apis.SYNC_GROUP.key: ("groups", "handle_group_request"),
    apis.HEARTBEAT.key: ("groups", "handle_group_request"),
    apis.LEAVE_GROUP.key: ("groups", "handle_group_request"),
    apis.OFFSET_COMMIT.key: ("groups", "handle_group_request"),
    apis.OFFSET_FETCH.key: ("groups", "handle_group_request"),
    apis.OFFSET_DELETE.key: ("groups", "handle_group_request"),
    apis.DESCRIBE_GROUPS.key: ("groups", "handle_group_request"),
    apis.LIST_GROUPS.key: ("groups", "handle_group_request"),
    apis.DELETE_GROUPS.key: ("groups", "handle_group_request"),
    apis.DESCRIBE_LOG_DIRS.key: ("cluster", "handle_describe_log_dirs"),
    apis.ALTER_REPLICA_LOG_DIRS.key: ("cluster", "handle_alter_replica_log_dirs"),
    apis.ELECT_LEADERS.key: ("cluster", "handle_elect_leaders"),
    apis.ALTER_PARTITION_REASSIGNMENTS.key: ("cluster", "handle_alter_partition_reassignments"),
    apis.LIST_PARTITION_REASSIGNMENTS.key: ("cluster", "handle_list_partition_reassignments"),
    apis.DESCRIBE_QUORUM.key: ("cluster", "handle_describe_quorum"),
    apis.SASL_HANDSHAKE.key: ("sasl", "handle_sasl_handshake"),
    apis.SASL_AUTHENTICATE.key: ("sasl", "handle_sasl_authenticate"),
}

_found: dict[int, Handler] = {}


def handler_of(api_key: int) -> Handler:
    """The function that answers requests of this API."""
    handler = _found.get(api_key)
    if handler is None:
        module, name = _HANDLERS[api_key]
        handler = getattr(importlib.import_module(f"millstream.broker.handlers.{module}"), name)
        _found[api_key] = handler
    return handler
