"""The errors that a broker answers: one class for each code, with the action for the caller.

A class is named after its code: ``OFFSET_OUT_OF_RANGE`` is ``OffsetOutOfRangeError``. Its docstring is also
its message. The errors that few programs ever see are in ``rare``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from millstream.errors.codes import Action, ErrorCode
from millstream.errors.own import MillstreamError
from millstream.model import OffsetAndMetadata, TopicPartition


def class_name(code: ErrorCode) -> str:
    """Return the name of a code's class: OFFSET_OUT_OF_RANGE is OffsetOutOfRangeError."""
    words = code.name.removesuffix("_EXCEPTION").removesuffix("_ERROR").split("_")
    return "".join(word.capitalize() for word in words) + "Error"


_CODES = {class_name(code): code for code in ErrorCode}
_BY_CODE: dict[int, type[BrokerError]] = {}


class BrokerError(MillstreamError):
    """The broker refused the request."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    action: ClassVar[Action] = Action.ABORT
    """What to do next. The default is to give up and raise."""

    def __init_subclass__(cls, action: Action | None = None) -> None:
        super().__init_subclass__()
        if action is not None:
            cls.action = action
        code = _CODES.get(cls.__name__)
        if code is not None:
            cls.code = code
            _BY_CODE.setdefault(code, cls)

    def __str__(self) -> str:
        if not self.detail or self.meaning in self.detail:
            return self.detail or self.meaning
        return f"{self.detail.rstrip('. ')}. {self.meaning}"

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.action.retriable


def for_code(code: int) -> type[BrokerError]:
    """Return the class of an error code; ``UnknownServerError`` for codes newer than Kafka 4.1.

    NONE has no class: asking for it is a bug of ours.
    """
    assert code != ErrorCode.NONE, "NONE is not an error"
    return _BY_CODE.get(code, UnknownServerError)


def raise_for_code(code: int, message: str = "") -> None:
    """Raise the error of a code, with the broker's or the caller's ``message``; return when it is NONE."""
    if code == ErrorCode.NONE:
        return
    if code not in _BY_CODE:
        message = f"{message} (error code {code})".lstrip()
    raise for_code(code)(message)


class UnknownServerError(BrokerError):
    """The broker failed in an unexpected way: its log says why."""


class OffsetOutOfRangeError(BrokerError, action=Action.RESET_OFFSET):
    """The offset is not in the log, which starts later or ends earlier: seek, or set auto_offset_reset."""

    def __init__(self, detail: str = "", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self.offsets = dict(offsets or {})
        named = ", ".join(f"{offset} of {partition}" for partition, offset in sorted(self.offsets.items()))
        super().__init__(detail or (f"offset {named}" if named else ""))
        self.args = (detail, self.offsets)


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below the position when its leader changed, and records that were read are gone:
    seek to divergent_offsets, where known, or set auto_offset_reset."""

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        self.divergent_offsets = dict(divergent_offsets or {})
        super().__init__("", offsets)
        self.args = (self.offsets, self.divergent_offsets)


class CorruptMessageError(BrokerError, action=Action.RETRY):
    """The broker found a record batch with a wrong checksum or size, or no key for a compacted topic."""


class UnknownTopicOrPartitionError(BrokerError, action=Action.REFRESH_METADATA):
    """The broker has no such topic or partition: create it, or check the name."""


class LeaderNotAvailableError(BrokerError, action=Action.REFRESH_METADATA):
    """The partition has no leader at the moment: one is being elected."""


class NotLeaderOrFollowerError(BrokerError, action=Action.REFRESH_METADATA):
    """The partition has moved to another broker."""


class RequestTimedOutError(BrokerError, action=Action.RETRY):
    """The broker did not finish the request within its timeout."""


class MessageTooLargeError(BrokerError):
    """The record batch is larger than the topic allows: send less at once, or raise its max.message.bytes."""


class RecordTooLargeError(MessageTooLargeError):
    """The record is larger than max_request_size: send less at once, or raise that."""


class OffsetMetadataTooLargeError(BrokerError):
    """The metadata committed with an offset is larger than the broker's offset.metadata.max.bytes."""


class NetworkError(BrokerError, action=Action.REFRESH_METADATA):
    """The connection to the broker broke before the answer came."""


class CoordinatorLoadInProgressError(BrokerError, action=Action.RETRY):
    """The coordinator is still reading its groups from the log."""


class CoordinatorNotAvailableError(BrokerError, action=Action.FIND_COORDINATOR):
    """The group's coordinator is not available at the moment."""


class NotCoordinatorError(BrokerError, action=Action.FIND_COORDINATOR):
    """The group has moved to another coordinator."""


class InvalidTopicError(BrokerError):
    """The topic may not be used so, or its name is invalid: 1 to 249 of a-z, A-Z, 0-9, ".", "_", "-"."""


class RecordListTooLargeError(BrokerError):
    """The record batch is larger than a segment of the log: send less at once, or raise segment.bytes."""


class NotEnoughReplicasError(BrokerError, action=Action.RETRY):
    """Fewer replicas are in sync than min.insync.replicas asks for: nothing was written."""


class NotEnoughReplicasAfterAppendError(BrokerError, action=Action.RETRY):
    """The records were written, but to fewer replicas than min.insync.replicas asks for."""


class InvalidRequiredAcksError(BrokerError):
    """acks must be 0, 1 or all."""


class IllegalGenerationError(BrokerError, action=Action.REJOIN):
    """The group has moved on to a newer generation without this member: it must rejoin."""


class InconsistentGroupProtocolError(BrokerError):
    """The group's members share no assignor with this one: use the same partition_assignment_strategy."""


class InvalidGroupIdError(BrokerError):
    """The group_id is invalid here: it must not be empty."""


class UnknownMemberIdError(BrokerError, action=Action.REJOIN):
    """The coordinator no longer knows this member, whose session has ended: it must rejoin."""


class InvalidSessionTimeoutError(BrokerError):
    """session_timeout_ms is outside the broker's range: group.min.session.timeout.ms to
    group.max.session.timeout.ms."""


class RebalanceInProgressError(BrokerError, action=Action.REJOIN):
    """The group is rebalancing: the member must rejoin, which the next poll() does."""


class TopicAuthorizationFailedError(BrokerError):
    """This client may not use the topic: ask the cluster's administrator for access."""


class GroupAuthorizationFailedError(BrokerError):
    """This client may not use the group: ask the cluster's administrator for access."""


class ClusterAuthorizationFailedError(BrokerError):
    """This client may not do this to the cluster: ask its administrator for access."""


class InvalidTimestampError(BrokerError):
    """A record's timestamp is too far from the broker's clock for the topic's message.timestamp settings."""


class AuthenticationError(BrokerError):
    """This client and the broker could not authenticate each other: check the security settings."""

    def __str__(self) -> str:
        return self.detail or self.meaning


class UnsupportedSaslMechanismError(AuthenticationError):
    """The broker does not offer this SASL mechanism."""


class UnsupportedVersionError(BrokerError):
    """Client and broker share no version of this request: one of the two is too old."""


class TopicAlreadyExistsError(BrokerError):
    """A topic of this name exists already: use it, or choose another name."""


class InvalidPartitionsError(BrokerError):
    """The number of partitions is not possible: it must be at least 1, and can only grow."""


class InvalidReplicationFactorError(BrokerError):
    """The replication factor must be at least 1, and at most the number of brokers."""


class InvalidReplicaAssignmentError(BrokerError):
    """The assignment of replicas to brokers is not possible."""


class InvalidConfigError(BrokerError):
    """The broker does not accept this setting of a topic or broker."""


class NotControllerError(BrokerError, action=Action.REFRESH_METADATA):
    """Another broker controls the cluster now."""


class InvalidRequestError(BrokerError):
    """The request is malformed or contradictory: the broker's log may say why."""


class PolicyViolationError(BrokerError):
    """A policy of the cluster forbids this."""


class OutOfOrderSequenceNumberError(BrokerError):
    """Earlier batches of this idempotent producer are missing: records before this one may be lost."""


class DuplicateSequenceNumberError(BrokerError):
    """The broker already has this batch of an idempotent producer."""


class InvalidProducerEpochError(BrokerError):
    """A newer producer with the same id has taken over from this one."""


class TransactionalIdAuthorizationFailedError(BrokerError):
    """This client may not use the transactional id, or the broker does not support transactions yet."""


class KafkaStorageError(BrokerError, action=Action.REFRESH_METADATA):
    """The broker cannot write to its disk: nothing was acknowledged. Check the disk; its log says more."""


class SaslAuthenticationFailedError(AuthenticationError):
    """The broker did not accept the user's name and credentials."""


class UnknownProducerIdError(BrokerError):
    """The broker no longer knows this producer: all of its records were deleted or are too old."""


class NonEmptyGroupError(BrokerError):
    """The group has members: stop them first."""


class GroupIdNotFoundError(BrokerError):
    """There is no such group: check its name."""


class TopicDeletionDisabledError(BrokerError):
    """The broker's delete.topic.enable forbids deleting topics."""


class UnsupportedCompressionTypeError(BrokerError):
    """The records are compressed in a way that this version of the request cannot carry."""


class GroupMaxSizeReachedError(BrokerError):
    """The group is full: stop a member, or raise the broker's group.max.size."""


class FencedInstanceIdError(BrokerError, action=Action.FATAL):
    """Another member has joined with this group_instance_id: close this one, and give each its own."""


class GroupSubscribedToTopicError(BrokerError):
    """The group is subscribed to this topic, so its offsets stay: stop its members first."""


class InvalidRecordError(BrokerError):
    """The broker refuses a record of this batch: for example, one without a key in a compacted topic.

    ``at_fault`` is False for a record that is valid itself, and was refused with another one of its batch.
    """

    at_fault = True


class ThrottlingQuotaExceededError(BrokerError, action=Action.RETRY):
    """The broker throttles this kind of request."""


class ProducerFencedError(BrokerError, action=Action.FATAL):
    """A newer producer has the same transactional_id: close this one."""


class UnknownTopicIdError(BrokerError, action=Action.REFRESH_METADATA):
    """The broker has no topic with this id: it was deleted, perhaps to be created again."""


class InconsistentTopicIdError(BrokerError, action=Action.REFRESH_METADATA):
    """The topic was deleted and created again: its id has changed."""
