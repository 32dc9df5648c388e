"""The broker errors that few programs ever see: their classes are made from a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from millstream.errors.broker import BrokerError, class_name
from millstream.errors.codes import Action, ErrorCode

_RARE: Final[Mapping[Action, Mapping[ErrorCode, str]]] = {
    Action.ABORT: {
        ErrorCode.ELECTION_NOT_NEEDED: "The partition has the leader it should have.",
        ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being moved.",
        ErrorCode.INVALID_FETCH_SIZE: "The fetch size is invalid.",
        ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
        ErrorCode.STALE_CONTROLLER_EPOCH: "The request comes from a controller that was replaced.",
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "Too many offsets for one record: commit fewer at once.",
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The log's record format is too old for this request.",
        ErrorCode.INVALID_TXN_STATE: "The transaction is not in a state that allows this.",
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id no longer belongs to this transactional_id.",
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms exceeds transaction.max.timeout.ms.",
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: "Another transaction coordinator has taken over.",
        ErrorCode.SECURITY_DISABLED: "The broker runs without security features.",
        ErrorCode.OPERATION_NOT_ATTEMPTED: "Not done, because another part of the request failed.",
        ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partitions are being moved: wait until that is done.",
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The broker runs without delegation tokens.",
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The delegation token belongs to someone else.",
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "This connection may not manage delegation tokens.",
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "This client may not use the delegation token.",
        ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
        ErrorCode.INVALID_PRINCIPAL_TYPE: "This type of principal is not supported.",
        ErrorCode.STALE_BROKER_EPOCH: "The broker has registered again since then.",
        ErrorCode.RESOURCE_NOT_FOUND: "The request names a resource that does not exist.",
        ErrorCode.DUPLICATE_RESOURCE: "The request names a resource twice.",
        ErrorCode.UNACCEPTABLE_CREDENTIAL: "The broker does not accept such a credential.",
        ErrorCode.INCONSISTENT_VOTER_SET: "The sender or the receiver is not among the expected voters.",
        ErrorCode.INVALID_UPDATE_VERSION: "The version of the update is invalid.",
        ErrorCode.FEATURE_UPDATE_FAILED: "The feature update failed: see the controller's log.",
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The brokers do not understand each other's principals.",
        ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
        ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside the snapshot.",
        ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another broker has this id.",
        ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker with this id is registered.",
        ErrorCode.INCONSISTENT_CLUSTER_ID: "The request was meant for another cluster.",
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The broker does not know this transactional_id.",
        ErrorCode.INELIGIBLE_REPLICA: "A replica of the new in-sync set may not be in it.",
        ErrorCode.NEW_LEADER_ELECTED: "The partition was changed, and has a new leader.",
        ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset lies in tiered storage.",
        ErrorCode.STALE_MEMBER_EPOCH: "The member has yet to learn its newest epoch from a heartbeat.",
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: "A controller's request reached a broker, or the reverse.",
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This type of endpoint is not supported.",
        ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller with this id.",
        ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The broker no longer knows this telemetry subscription.",
        ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
        ErrorCode.INVALID_REGISTRATION: "The controller does not accept this broker's registration.",
        ErrorCode.TRANSACTION_ABORTABLE: "The transaction failed: abort it, and begin a new one.",
        ErrorCode.INVALID_RECORD_STATE: "The record cannot be acknowledged in its present state.",
        ErrorCode.FENCED_STATE_EPOCH: "The share group's state epoch is out of date.",
        ErrorCode.INVALID_VOTER_KEY: "The voter's key is not that of the receiver.",
        ErrorCode.DUPLICATE_VOTER: "The voter is in the set already.",
        ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set.",
        ErrorCode.INVALID_REGULAR_EXPRESSION: "The broker does not understand this regular expression.",
        ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is invalid.",
        ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The epoch of the topology is invalid.",
        ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology is out of date.",
    },
    Action.REFRESH_METADATA: {
        ErrorCode.FENCED_LEADER_EPOCH: "The client's metadata is older than the partition's leader.",
        ErrorCode.REBOOTSTRAP_REQUIRED: "The metadata is unusable: start again from bootstrap_servers.",
        ErrorCode.REPLICA_NOT_AVAILABLE: "The broker has no replica of this partition at the moment.",
        ErrorCode.LISTENER_NOT_FOUND: "The partition's leader has no listener of the kind this client uses.",
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The partition's preferred leader is not available.",
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica of the partition can be its leader now.",
    },
    Action.FATAL: {
        ErrorCode.ILLEGAL_SASL_STATE: "The request is not valid at this point of the SASL exchange.",
        ErrorCode.UNRELEASED_INSTANCE_ID: "Another member has this group_instance_id: it must leave first.",
        ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support this assignor.",
    },
    Action.RETRY: {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker has dropped the fetch session: begin a new one.",
        ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session is out of step: begin a new one.",
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes names and ids: begin a new one.",
        ErrorCode.OFFSET_NOT_AVAILABLE: "The partition's new leader does not know the end of the log yet.",
        ErrorCode.UNKNOWN_LEADER_EPOCH: "The client's metadata is newer than what this broker knows.",
        ErrorCode.UNSTABLE_OFFSET_COMMIT: "An open transaction has yet to commit offsets of this group.",
        ErrorCode.CONCURRENT_TRANSACTIONS: "The producer's previous transaction is still being completed.",
        ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker has dropped this share session: begin a new one.",
        ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session is out of step: begin a new one.",
        ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has reached its limit of share sessions.",
    },
    Action.REJOIN: {
        ErrorCode.MEMBER_ID_REQUIRED: "The member was given an id: it must join again with it.",
        ErrorCode.FENCED_MEMBER_EPOCH: "The member's epoch is out of date: it must give up its partitions.",
    },
}


for _action, _meanings in _RARE.items():
    for _code, _meaning in _meanings.items():
        _members = {"__doc__": _meaning, "__module__": __name__}
        globals()[class_name(_code)] = type(class_name(_code), (BrokerError,), _members, action=_action)
