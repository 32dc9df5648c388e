"""The error codes of Kafka's protocol, as of Kafka 4.1, and what a caller can do about an error.

The exceptions, one for each code, are in ``errors``.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class ErrorCode(IntEnum):
    """A code as it stands in a response. Names are the protocol's own."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


class Action(Enum):
    """What the caller of a failed request should do next."""

    RETRY = "retry"
    """Send the same again, after a back-off."""
    REFRESH_METADATA = "refresh_metadata"
    """Refresh the metadata, then send again to whoever leads now."""
    FIND_COORDINATOR = "find_coordinator"
    """Look the coordinator up again, then send again."""
    REJOIN = "rejoin"
    """Join the group anew."""
    RESET_OFFSET = "reset_offset"
    """Choose another offset, as auto_offset_reset says."""
    ABORT = "abort"
    """Give this request up and raise."""
    FATAL = "fatal"
    """Raise now and on every later call: this client cannot go on."""

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, without its sender changing it."""
        return self in _RETRIABLE


_RETRIABLE = frozenset({Action.RETRY, Action.REFRESH_METADATA, Action.FIND_COORDINATOR})


RARE_ERRORS: tuple[tuple[ErrorCode, Action, str], ...] = (
    (ErrorCode.INVALID_FETCH_SIZE, Action.ABORT, "The size to fetch is not legal."),
    (ErrorCode.BROKER_NOT_AVAILABLE, Action.ABORT, "The broker is not available."),
    (
        ErrorCode.REPLICA_NOT_AVAILABLE,
        Action.REFRESH_METADATA,
        "The broker has no replica of this partition at the moment.",
    ),
    (
        ErrorCode.STALE_CONTROLLER_EPOCH,
        Action.ABORT,
        "The request comes from a controller that another one has replaced.",
    ),
    (
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        Action.ABORT,
        "The offsets to commit make a record that is too large: commit fewer at once.",
    ),
    (ErrorCode.ILLEGAL_SASL_STATE, Action.FATAL, "The request does not belong here in the SASL exchange."),
    (
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        Action.ABORT,
        "The log's record format is too old for this request.",
    ),
    (ErrorCode.INVALID_TXN_STATE, Action.ABORT, "The transaction is not in a state that allows this."),
    (
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        Action.ABORT,
        "The producer id no longer belongs to this transactional_id.",
    ),
    (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        Action.ABORT,
        "transaction_timeout_ms is larger than the broker's transaction.max.timeout.ms.",
    ),
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        Action.RETRY,
        "The producer's previous transaction is still being completed.",
    ),
    (
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        Action.ABORT,
        "Another transaction coordinator has taken over.",
    ),
    (ErrorCode.SECURITY_DISABLED, Action.ABORT, "The broker runs without security features."),
    (
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        Action.ABORT,
        "The broker left this part undone, because another part of the request failed.",
    ),
    (
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        Action.ABORT,
        "The partitions are being moved: wait until that is done.",
    ),
    (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, Action.ABORT, "The broker runs without delegation tokens."),
    (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, Action.ABORT, "There is no such delegation token."),
    (
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        Action.ABORT,
        "The delegation token belongs to someone else.",
    ),
    (
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        Action.ABORT,
        "Delegation tokens cannot be handled over this kind of connection.",
    ),
    (
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        Action.ABORT,
        "This client may not use the delegation token.",
    ),
    (ErrorCode.DELEGATION_TOKEN_EXPIRED, Action.ABORT, "The delegation token has expired."),
    (ErrorCode.INVALID_PRINCIPAL_TYPE, Action.ABORT, "This type of principal is not supported."),
    (
        ErrorCode.LISTENER_NOT_FOUND,
        Action.REFRESH_METADATA,
        "The partition's leader has no listener of the kind this client uses.",
    ),
    (ErrorCode.STALE_BROKER_EPOCH, Action.ABORT, "The broker has registered again since."),
    (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        Action.REFRESH_METADATA,
        "The partition's preferred leader is not available.",
    ),
    (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Action.REFRESH_METADATA,
        "No replica of the partition can be its leader now.",
    ),
    (ErrorCode.RESOURCE_NOT_FOUND, Action.ABORT, "The request names a resource that does not exist."),
    (ErrorCode.DUPLICATE_RESOURCE, Action.ABORT, "The request names a resource twice."),
    (ErrorCode.UNACCEPTABLE_CREDENTIAL, Action.ABORT, "The broker does not accept such a credential."),
    (
        ErrorCode.INCONSISTENT_VOTER_SET,
        Action.ABORT,
        "The sender or the receiver is not among the expected voters.",
    ),
    (ErrorCode.INVALID_UPDATE_VERSION, Action.ABORT, "The version of the update is not legal."),
    (
        ErrorCode.FEATURE_UPDATE_FAILED,
        Action.ABORT,
        "The cluster's features could not be updated: the controller's log says why.",
    ),
    (
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        Action.ABORT,
        "The brokers do not understand each other's principals.",
    ),
    (ErrorCode.SNAPSHOT_NOT_FOUND, Action.ABORT, "There is no such snapshot."),
    (ErrorCode.POSITION_OUT_OF_RANGE, Action.ABORT, "The position lies outside the snapshot."),
    (ErrorCode.DUPLICATE_BROKER_REGISTRATION, Action.ABORT, "Another broker has this id."),
    (ErrorCode.BROKER_ID_NOT_REGISTERED, Action.ABORT, "No broker with this id is registered."),
    (ErrorCode.INCONSISTENT_CLUSTER_ID, Action.ABORT, "The request was meant for another cluster."),
    (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, Action.ABORT, "The broker does not know this transactional_id."),
    (ErrorCode.INELIGIBLE_REPLICA, Action.ABORT, "A replica of the new in-sync set may not be in it."),
    (ErrorCode.NEW_LEADER_ELECTED, Action.ABORT, "The partition was changed, and has a new leader."),
    (ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, Action.ABORT, "The offset lies in tiered storage."),
    (
        ErrorCode.FENCED_MEMBER_EPOCH,
        Action.REJOIN,
        "The coordinator has moved on without this member: it must give up its partitions and rejoin.",
    ),
    (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        Action.FATAL,
        "Another member still has this group_instance_id: it must leave first.",
    ),
    (ErrorCode.UNSUPPORTED_ASSIGNOR, Action.FATAL, "The group does not support this assignor."),
    (
        ErrorCode.STALE_MEMBER_EPOCH,
        Action.ABORT,
        "The member has yet to learn its newest epoch from a heartbeat.",
    ),
    (
        ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        Action.ABORT,
        "The request went to a broker but was meant for a controller, or the reverse.",
    ),
    (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, Action.ABORT, "This type of endpoint is not supported."),
    (ErrorCode.UNKNOWN_CONTROLLER_ID, Action.ABORT, "There is no controller with this id."),
    (
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        Action.ABORT,
        "The broker does not know this telemetry subscription any more.",
    ),
    (ErrorCode.TELEMETRY_TOO_LARGE, Action.ABORT, "The telemetry is larger than the broker accepts."),
    (
        ErrorCode.INVALID_REGISTRATION,
        Action.ABORT,
        "The controller does not accept this broker's registration.",
    ),
    (ErrorCode.TRANSACTION_ABORTABLE, Action.ABORT, "The transaction failed: abort it, and begin a new one."),
    (ErrorCode.INVALID_RECORD_STATE, Action.ABORT, "The record cannot be acknowledged in its present state."),
    (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        Action.RETRY,
        "The broker has dropped this share session: begin a new one.",
    ),
    (
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        Action.RETRY,
        "The share session is out of step: begin a new one.",
    ),
    (ErrorCode.FENCED_STATE_EPOCH, Action.ABORT, "The share group's state has moved on."),
    (ErrorCode.INVALID_VOTER_KEY, Action.ABORT, "The voter's key is not that of the receiver."),
    (ErrorCode.DUPLICATE_VOTER, Action.ABORT, "The voter is in the set already."),
    (ErrorCode.VOTER_NOT_FOUND, Action.ABORT, "The voter is not in the set."),
    (
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        Action.ABORT,
        "The broker does not understand this regular expression.",
    ),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY, Action.ABORT, "The topology is not legal."),
    (ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, Action.ABORT, "The epoch of the topology is not legal."),
    (ErrorCode.STREAMS_TOPOLOGY_FENCED, Action.ABORT, "The topology is out of date."),
    (
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        Action.RETRY,
        "The broker has as many share sessions as it allows.",
    ),
)
"""The codes that few programs ever see; ``errors`` makes their classes from this table."""
