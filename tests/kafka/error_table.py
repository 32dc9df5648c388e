"""What our clients do about each error code of each API: one action for each, as data.

The codes are those that Kafka documents for the answers of an API, and those that its clients look for. A key
is an API and, where several of our calls use it, who asks. ``DIFFERENT`` says where Java's client does
something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.errors import (
    CommitFailedError,
    ErrorCode,
    MillstreamError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    for_code,
)
from tests.kafka.refusals import INNERMOST

E = ErrorCode


class Act(Enum):
    """What follows a refused request."""

    RETRY = "sent again"
    REFRESH = "sent again, with new metadata"
    FIND = "sent again, to the coordinator looked up"
    REJOIN = "rejoins"
    REJOIN_ANEW = "rejoins as a new member"
    RESET = "position reset"
    NEW_SESSION = "new fetch session"
    NEW_EPOCH = "sent again under a new epoch"
    SPLIT = "sent again in halves"
    LOWER = "asked again in version 0"
    DONE = "taken as done"
    RAISE = "raised"
    FATAL = "raised, now and ever after"


@dataclass(frozen=True)
class Row:
    """An error code in an answer to ``asker``, what follows, and what the user is told, if anything."""

    asker: str
    code: ErrorCode
    act: Act
    level: int
    error: type[MillstreamError] | None


_COORDINATOR_GONE: Final = (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
_LEADER_GONE: Final = (
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_LEADER_OR_FOLLOWER,
    E.REPLICA_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.OFFSET_NOT_AVAILABLE,
)
_CHANGES_OF_TOPICS: Final = {
    Act.RETRY: (E.THROTTLING_QUOTA_EXCEEDED,),
    Act.REFRESH: (E.NOT_CONTROLLER,),
}
_REFUSED_CHANGES: Final = (
    E.REQUEST_TIMED_OUT,
    E.INVALID_TOPIC_EXCEPTION,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.INVALID_REQUEST,
    E.UNKNOWN_SERVER_ERROR,
)

TABLE: Final[Mapping[str, Mapping[Act, tuple[ErrorCode, ...]]]] = {
    "ApiVersions": {Act.LOWER: (E.UNSUPPORTED_VERSION,), Act.RAISE: (E.INVALID_REQUEST,)},
    "Produce": {
        Act.RETRY: (
            E.CORRUPT_MESSAGE,
            E.REQUEST_TIMED_OUT,
            E.NOT_ENOUGH_REPLICAS,
            E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        Act.REFRESH: (
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.LEADER_NOT_AVAILABLE,
            E.NOT_LEADER_OR_FOLLOWER,
            E.KAFKA_STORAGE_ERROR,
            E.UNKNOWN_TOPIC_ID,
        ),
        Act.NEW_EPOCH: (E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID),
        Act.DONE: (E.DUPLICATE_SEQUENCE_NUMBER,),
        Act.RAISE: (
            E.UNKNOWN_SERVER_ERROR,
            E.MESSAGE_TOO_LARGE,
            E.INVALID_TOPIC_EXCEPTION,
            E.RECORD_LIST_TOO_LARGE,
            E.INVALID_REQUIRED_ACKS,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.CLUSTER_AUTHORIZATION_FAILED,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.INVALID_TIMESTAMP,
            E.INVALID_REQUEST,
            E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            E.UNSUPPORTED_COMPRESSION_TYPE,
            E.POLICY_VIOLATION,
            E.INVALID_PRODUCER_EPOCH,
            E.INVALID_RECORD,
            E.INVALID_TXN_STATE,
            E.INVALID_PRODUCER_ID_MAPPING,
        ),
    },
    "Produce, several records": {Act.SPLIT: (E.MESSAGE_TOO_LARGE,)},
    "InitProducerId": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, *_COORDINATOR_GONE),
        Act.RAISE: (
            E.CLUSTER_AUTHORIZATION_FAILED,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.INVALID_PRODUCER_EPOCH,
            E.PRODUCER_FENCED,
        ),
    },
    "Fetch": {
        Act.RETRY: (E.UNKNOWN_SERVER_ERROR,),
        Act.REFRESH: (*_LEADER_GONE, E.UNKNOWN_TOPIC_ID, E.INCONSISTENT_TOPIC_ID),
        Act.RESET: (E.OFFSET_OUT_OF_RANGE,),
        Act.RAISE: (E.TOPIC_AUTHORIZATION_FAILED, E.UNSUPPORTED_COMPRESSION_TYPE, E.CORRUPT_MESSAGE),
    },
    "Fetch, its session": {
        Act.NEW_SESSION: (
            E.FETCH_SESSION_ID_NOT_FOUND,
            E.INVALID_FETCH_SESSION_EPOCH,
            E.FETCH_SESSION_TOPIC_ID_ERROR,
        ),
    },
    "ListOffsets": {
        Act.RETRY: (E.UNKNOWN_SERVER_ERROR,),
        Act.REFRESH: (*_LEADER_GONE, E.LEADER_NOT_AVAILABLE),
        Act.RAISE: (E.TOPIC_AUTHORIZATION_FAILED, E.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    },
    "ListOffsets, end_offsets": {
        Act.RETRY: (E.UNKNOWN_SERVER_ERROR,),
        Act.REFRESH: (*_LEADER_GONE, E.LEADER_NOT_AVAILABLE),
        Act.DONE: (E.UNSUPPORTED_FOR_MESSAGE_FORMAT,),
        Act.RAISE: (E.TOPIC_AUTHORIZATION_FAILED,),
    },
    "ListOffsets, Admin": {
        Act.REFRESH: (
            *(code for code in _LEADER_GONE if code is not E.UNKNOWN_TOPIC_OR_PARTITION),
            E.LEADER_NOT_AVAILABLE,
        ),
        Act.RAISE: (
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_SERVER_ERROR,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ),
    },
    "OffsetForLeaderEpoch": {
        Act.RETRY: (E.UNKNOWN_SERVER_ERROR,),
        Act.REFRESH: (*_LEADER_GONE, E.LEADER_NOT_AVAILABLE),
        Act.RAISE: (E.TOPIC_AUTHORIZATION_FAILED,),
    },
    "Metadata": {
        Act.RETRY: (E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE, E.UNKNOWN_TOPIC_ID),
        Act.RAISE: (E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED),
    },
    "Metadata, of partitions": {
        Act.RETRY: (E.LEADER_NOT_AVAILABLE, E.LISTENER_NOT_FOUND, E.REPLICA_NOT_AVAILABLE),
    },
    "Metadata, all of it": {Act.RETRY: (E.REBOOTSTRAP_REQUIRED,)},
    "Metadata, subscribed": {Act.RAISE: (E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED)},
    "Metadata, Producer": {
        Act.RETRY: (E.UNKNOWN_TOPIC_OR_PARTITION, E.LEADER_NOT_AVAILABLE),
        Act.RAISE: (E.INVALID_TOPIC_EXCEPTION, E.TOPIC_AUTHORIZATION_FAILED),
    },
    "FindCoordinator": {
        Act.RETRY: (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS),
        Act.RAISE: (
            E.GROUP_AUTHORIZATION_FAILED,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.INVALID_REQUEST,
            E.INVALID_GROUP_ID,
        ),
    },
    "JoinGroup": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, E.REBALANCE_IN_PROGRESS),
        Act.FIND: _COORDINATOR_GONE,
        Act.REJOIN_ANEW: (E.UNKNOWN_MEMBER_ID,),
        Act.RAISE: (
            E.INCONSISTENT_GROUP_PROTOCOL,
            E.INVALID_SESSION_TIMEOUT,
            E.INVALID_GROUP_ID,
            E.GROUP_AUTHORIZATION_FAILED,
            E.GROUP_MAX_SIZE_REACHED,
            E.UNSUPPORTED_VERSION,
            E.UNKNOWN_SERVER_ERROR,
        ),
        Act.FATAL: (E.FENCED_INSTANCE_ID,),
    },
    "SyncGroup": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.REJOIN: (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION),
        Act.REJOIN_ANEW: (E.UNKNOWN_MEMBER_ID,),
        Act.RAISE: (E.GROUP_AUTHORIZATION_FAILED, E.INCONSISTENT_GROUP_PROTOCOL, E.UNKNOWN_SERVER_ERROR),
        Act.FATAL: (E.FENCED_INSTANCE_ID,),
    },
    "Heartbeat": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.REJOIN: (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION),
        Act.REJOIN_ANEW: (E.UNKNOWN_MEMBER_ID,),
        Act.RAISE: (E.GROUP_AUTHORIZATION_FAILED, E.UNKNOWN_SERVER_ERROR),
        Act.FATAL: (E.FENCED_INSTANCE_ID,),
    },
    "LeaveGroup": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.DONE: (E.GROUP_AUTHORIZATION_FAILED, E.UNKNOWN_SERVER_ERROR),
    },
    "LeaveGroup, one member": {Act.DONE: (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID)},
    "OffsetCommit": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION),
        Act.FIND: (*_COORDINATOR_GONE, E.REQUEST_TIMED_OUT),
        Act.REJOIN: (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION),
        Act.REJOIN_ANEW: (E.UNKNOWN_MEMBER_ID,),
        Act.RAISE: (
            E.OFFSET_METADATA_TOO_LARGE,
            E.INVALID_COMMIT_OFFSET_SIZE,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.GROUP_AUTHORIZATION_FAILED,
            E.INVALID_GROUP_ID,
            E.GROUP_ID_NOT_FOUND,
            E.STALE_MEMBER_EPOCH,
            E.INVALID_PRODUCER_ID_MAPPING,
            E.INVALID_TXN_STATE,
            E.UNKNOWN_SERVER_ERROR,
        ),
        Act.FATAL: (E.FENCED_INSTANCE_ID,),
    },
    "OffsetCommit, Admin": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.OFFSET_METADATA_TOO_LARGE,
            E.UNKNOWN_MEMBER_ID,
            E.REBALANCE_IN_PROGRESS,
            E.INVALID_GROUP_ID,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.GROUP_AUTHORIZATION_FAILED,
        ),
    },
    "OffsetFetch": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (
            E.GROUP_AUTHORIZATION_FAILED,
            E.INVALID_GROUP_ID,
            E.UNKNOWN_MEMBER_ID,
            E.STALE_MEMBER_EPOCH,
            E.UNKNOWN_SERVER_ERROR,
        ),
    },
    "OffsetFetch, of partitions": {
        Act.RETRY: (E.UNSTABLE_OFFSET_COMMIT,),
        Act.RAISE: (E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED),
    },
    "OffsetFetch, Admin": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND),
    },
    "OffsetDelete": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (
            E.GROUP_AUTHORIZATION_FAILED,
            E.INVALID_GROUP_ID,
            E.GROUP_ID_NOT_FOUND,
            E.NON_EMPTY_GROUP,
        ),
    },
    "OffsetDelete, of partitions": {
        Act.RAISE: (
            E.GROUP_SUBSCRIBED_TO_TOPIC,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ),
    },
    "DescribeGroups": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (E.GROUP_AUTHORIZATION_FAILED, E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND),
    },
    "ListGroups": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE),
        Act.RAISE: (E.CLUSTER_AUTHORIZATION_FAILED, E.UNKNOWN_SERVER_ERROR),
    },
    "DeleteGroups": {
        Act.RETRY: (E.COORDINATOR_LOAD_IN_PROGRESS,),
        Act.FIND: _COORDINATOR_GONE,
        Act.RAISE: (
            E.GROUP_AUTHORIZATION_FAILED,
            E.INVALID_GROUP_ID,
            E.GROUP_ID_NOT_FOUND,
            E.NON_EMPTY_GROUP,
        ),
    },
    "CreateTopics": {
        **_CHANGES_OF_TOPICS,
        Act.RAISE: (
            *_REFUSED_CHANGES,
            E.TOPIC_ALREADY_EXISTS,
            E.INVALID_PARTITIONS,
            E.INVALID_REPLICATION_FACTOR,
            E.INVALID_REPLICA_ASSIGNMENT,
            E.INVALID_CONFIG,
            E.POLICY_VIOLATION,
        ),
    },
    "DeleteTopics": {
        **_CHANGES_OF_TOPICS,
        Act.RAISE: (
            *_REFUSED_CHANGES,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_ID,
            E.TOPIC_DELETION_DISABLED,
        ),
    },
    "CreatePartitions": {
        **_CHANGES_OF_TOPICS,
        Act.RAISE: (
            *_REFUSED_CHANGES,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.INVALID_PARTITIONS,
            E.INVALID_REPLICA_ASSIGNMENT,
            E.REASSIGNMENT_IN_PROGRESS,
            E.POLICY_VIOLATION,
        ),
    },
    "DeleteRecords": {
        Act.REFRESH: (
            E.NOT_LEADER_OR_FOLLOWER,
            E.LEADER_NOT_AVAILABLE,
            E.KAFKA_STORAGE_ERROR,
            E.REQUEST_TIMED_OUT,
        ),
        Act.RAISE: (
            E.OFFSET_OUT_OF_RANGE,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.TOPIC_AUTHORIZATION_FAILED,
            E.POLICY_VIOLATION,
            E.UNKNOWN_SERVER_ERROR,
        ),
    },
    "DescribeConfigs": {
        Act.RAISE: (
            E.TOPIC_AUTHORIZATION_FAILED,
            E.CLUSTER_AUTHORIZATION_FAILED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.INVALID_TOPIC_EXCEPTION,
            E.INVALID_REQUEST,
            E.UNKNOWN_SERVER_ERROR,
        ),
    },
    "IncrementalAlterConfigs": {
        Act.REFRESH: (E.NOT_CONTROLLER,),
        Act.RAISE: (
            E.TOPIC_AUTHORIZATION_FAILED,
            E.CLUSTER_AUTHORIZATION_FAILED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.INVALID_TOPIC_EXCEPTION,
            E.INVALID_REQUEST,
            E.INVALID_CONFIG,
            E.POLICY_VIOLATION,
            E.UNKNOWN_SERVER_ERROR,
        ),
    },
}

_LEVELS: Final[Mapping[str, int]] = {
    "Fetch, its session": 0,
    "Metadata": 1,
    "Metadata, of partitions": 2,
    "Metadata, all of it": 0,
    "Metadata, subscribed": 1,
    "Metadata, Producer": 1,
    "LeaveGroup": 0,
    "OffsetFetch": 0,
    "OffsetFetch, Admin": 0,
    "OffsetDelete": 0,
}
"""Where the code stands, from the outside; in the innermost place of the others."""

_TOLD: Final[Mapping[tuple[str, ErrorCode], type[MillstreamError]]] = {
    ("OffsetCommit", E.REBALANCE_IN_PROGRESS): RebalanceInProgressError,
    ("OffsetCommit", E.ILLEGAL_GENERATION): CommitFailedError,
    ("OffsetCommit", E.UNKNOWN_MEMBER_ID): CommitFailedError,
    ("OffsetCommit, Admin", E.UNKNOWN_MEMBER_ID): NonEmptyGroupError,
}
"""What the user is told where it is not the error's own name, or where more follows than telling."""

DIFFERENT: Final[Mapping[str, str]] = {
    "INVALID_REQUEST about ApiVersions is raised": "connects again until the call's time is over",
    "heartbeats and syncs are sent again after COORDINATOR_LOAD_IN_PROGRESS": "raises",
    "a sync goes to the coordinator that was looked up": "joins again there",
    "leaving is repeated until it is done, or the session has ended": "asks once, and the group waits",
    "UNKNOWN_LEADER_EPOCH of a fetch has the metadata refreshed (librdkafka, too)": "waits",
    "where logs are too old for ListOffsets, a reset is raised": "asks again for ever",
    "what an Admin asks of a partition that is not there is raised": "asks until the call's time is over",
}
"""Where Java's client does something else."""


def _row(asker: str, code: ErrorCode, act: Act) -> Row:
    raised = for_code(code) if act in (Act.RAISE, Act.FATAL) else None
    return Row(asker, code, act, _LEVELS.get(asker, INNERMOST), _TOLD.get((asker, code), raised))


ROWS: Final = tuple(
    _row(asker, code, act) for asker, acts in TABLE.items() for act, codes in acts.items() for code in codes
)
