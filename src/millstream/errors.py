"""Every exception of millstream, all under ``MillstreamError``.

Three families:

- ``BrokerError``: what a broker answered. One subclass for each error code of Kafka 4.1, and each says
  what its ``action`` is: what the caller should do next. ``for_code`` finds the class of a code.
- what this process found out by itself: a wrong call, a wrong setting, a timeout, bytes that make no sense.
- what the consumer tells its user: ``WakeupError``, ``CommitFailedError`` and their like.

A class's docstring is also its message: what happened and, where there is something, what to do.
Classes end in ``Error`` and carry the code's own name (``OFFSET_OUT_OF_RANGE`` is ``OffsetOutOfRangeError``);
only ``CorruptMessage``, ``CorruptBatch`` and ``UnsupportedMagic``, which report bytes rather than a broker's
answer, do not. All of them can be pickled, as Spark's workers need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from millstream.error_codes import RARE_ERRORS
from millstream.error_codes import Action as Action
from millstream.error_codes import ErrorCode as ErrorCode
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.own_errors import BrokerStartError as BrokerStartError
from millstream.own_errors import BufferExhaustedError as BufferExhaustedError
from millstream.own_errors import ClosedError as ClosedError
from millstream.own_errors import CommitFailedError as CommitFailedError
from millstream.own_errors import ConcurrentAccessError as ConcurrentAccessError
from millstream.own_errors import ConfigError as ConfigError
from millstream.own_errors import ConsumerClosedError as ConsumerClosedError
from millstream.own_errors import CorruptBatch as CorruptBatch
from millstream.own_errors import CorruptMessage as CorruptMessage
from millstream.own_errors import DataDirectoryLockedError as DataDirectoryLockedError
from millstream.own_errors import DataLostError as DataLostError
from millstream.own_errors import DeserializationError as DeserializationError
from millstream.own_errors import LoadFailedError as LoadFailedError
from millstream.own_errors import MillstreamError as MillstreamError
from millstream.own_errors import MillstreamTimeoutError as MillstreamTimeoutError
from millstream.own_errors import MissingExtraError as MissingExtraError
from millstream.own_errors import MisuseError as MisuseError
from millstream.own_errors import NoBrokersAvailableError as NoBrokersAvailableError
from millstream.own_errors import NoOffsetForPartitionError as NoOffsetForPartitionError
from millstream.own_errors import RetriableCommitFailedError as RetriableCommitFailedError
from millstream.own_errors import SerializationError as SerializationError
from millstream.own_errors import UnsupportedMagic as UnsupportedMagic
from millstream.own_errors import WakeupError as WakeupError


class BrokerError(MillstreamError):
    """The broker refused the request."""

    code: ClassVar[int] = ErrorCode.UNKNOWN_SERVER_ERROR
    action: ClassVar[Action] = Action.ABORT
    """What to do next; a class that says nothing means: give up and raise."""

    def __init_subclass__(cls, code: int | None = None, action: Action | None = None) -> None:
        super().__init_subclass__()
        if action is not None:
            cls.action = action
        if code is not None:
            assert code not in _BY_CODE, f"two classes for error code {code}"
            cls.code = ErrorCode(code)
            _BY_CODE[code] = cls

    def __str__(self) -> str:
        if not self.detail or self.meaning in self.detail:
            return self.detail or self.meaning
        return f"{self.detail.rstrip('. ')}. {self.meaning}"

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, without its sender changing it."""
        return self.action.retriable


_BY_CODE: dict[int, type[BrokerError]] = {}


def for_code(code: int) -> type[BrokerError]:
    """Return the class of an error code; ``UnknownServerError`` for codes that are newer than this list.

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


class UnknownServerError(BrokerError, code=-1):
    """The broker failed in an unexpected way: its log says why."""


class OffsetOutOfRangeError(BrokerError, code=1, action=Action.RESET_OFFSET):
    """The offset is not in the log, which starts later or ends earlier: seek, or set auto_offset_reset."""

    def __init__(self, detail: str = "", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        self.offsets = dict(offsets or {})
        named = ", ".join(f"{offset} of {partition}" for partition, offset in sorted(self.offsets.items()))
        super().__init__(detail or (f"offset {named}" if named else ""))
        self.args = (detail, self.offsets)


class LogTruncationError(OffsetOutOfRangeError):
    """The log was cut below the position when its leader changed, and records that were read are gone: seek
    to divergent_offsets, where known, or set auto_offset_reset."""

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int] | None = None,
        divergent_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        self.divergent_offsets = dict(divergent_offsets or {})
        super().__init__("", offsets)
        self.args = (self.offsets, self.divergent_offsets)


class CorruptMessageError(BrokerError, code=2, action=Action.RETRY):
    """The broker found a record batch with a wrong checksum or size, or no key for a compacted topic."""


class UnknownTopicOrPartitionError(BrokerError, code=3, action=Action.REFRESH_METADATA):
    """The broker has no such topic or partition: create it, or check the name."""


class LeaderNotAvailableError(BrokerError, code=5, action=Action.REFRESH_METADATA):
    """The partition has no leader at the moment: one is being elected."""


class NotLeaderOrFollowerError(BrokerError, code=6, action=Action.REFRESH_METADATA):
    """The partition has moved to another broker."""


class RequestTimedOutError(BrokerError, code=7, action=Action.RETRY):
    """The broker did not finish the request within the time it was given."""


class MessageTooLargeError(BrokerError, code=10):
    """The record batch is larger than the topic allows: send less at once, or raise its max.message.bytes."""


class RecordTooLargeError(MessageTooLargeError):
    """The record is larger than max_request_size: send less at once, or raise that."""


class OffsetMetadataTooLargeError(BrokerError, code=12):
    """The metadata committed with an offset is larger than the broker's offset.metadata.max.bytes."""


class NetworkError(BrokerError, code=13, action=Action.REFRESH_METADATA):
    """The connection to the broker broke before the answer came."""


class CoordinatorLoadInProgressError(BrokerError, code=14, action=Action.RETRY):
    """The coordinator is still reading its groups from the log."""


class CoordinatorNotAvailableError(BrokerError, code=15, action=Action.FIND_COORDINATOR):
    """The group's coordinator is not available at the moment."""


class NotCoordinatorError(BrokerError, code=16, action=Action.FIND_COORDINATOR):
    """The group has moved to another coordinator."""


class InvalidTopicError(BrokerError, code=17):
    """The topic may not be used so, or its name is not legal: 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-"."""


class RecordListTooLargeError(BrokerError, code=18):
    """The record batch is larger than a segment of the log: send less at once, or raise segment.bytes."""


class NotEnoughReplicasError(BrokerError, code=19, action=Action.RETRY):
    """Fewer replicas are in sync than min.insync.replicas asks for: nothing was written."""


class NotEnoughReplicasAfterAppendError(BrokerError, code=20, action=Action.RETRY):
    """The records were written, but to fewer replicas than min.insync.replicas asks for."""


class InvalidRequiredAcksError(BrokerError, code=21):
    """acks must be 0, 1 or all."""


class IllegalGenerationError(BrokerError, code=22, action=Action.REJOIN):
    """The group has moved on to a newer generation without this member: it must rejoin."""


class InconsistentGroupProtocolError(BrokerError, code=23):
    """The group's members share no assignor with this one: use the same partition_assignment_strategy."""


class InvalidGroupIdError(BrokerError, code=24):
    """The group_id is not legal here: it must not be empty."""


class UnknownMemberIdError(BrokerError, code=25, action=Action.REJOIN):
    """The coordinator no longer knows this member, whose session has ended: it must rejoin."""


class InvalidSessionTimeoutError(BrokerError, code=26):
    """session_timeout_ms lies outside what the broker allows: its group.min.session.timeout.ms to
    group.max.session.timeout.ms."""


class RebalanceInProgressError(BrokerError, code=27, action=Action.REJOIN):
    """The group is rebalancing: the member must rejoin, which the next poll() does."""


class TopicAuthorizationFailedError(BrokerError, code=29):
    """This client may not use the topic: ask the cluster's administrator for access."""


class GroupAuthorizationFailedError(BrokerError, code=30):
    """This client may not use the group: ask the cluster's administrator for access."""


class ClusterAuthorizationFailedError(BrokerError, code=31):
    """This client may not do this to the cluster: ask its administrator for access."""


class InvalidTimestampError(BrokerError, code=32):
    """A record's timestamp is too far from the broker's clock for the topic's message.timestamp settings."""


class UnsupportedSaslMechanismError(BrokerError, code=33, action=Action.FATAL):
    """The broker does not offer this SASL mechanism."""


class UnsupportedVersionError(BrokerError, code=35):
    """Client and broker have no version of this request in common: one of the two is too old for it."""


class TopicAlreadyExistsError(BrokerError, code=36):
    """A topic of this name exists already: use it, or choose another name."""


class InvalidPartitionsError(BrokerError, code=37):
    """The number of partitions is not possible: it must be at least 1, and can only grow."""


class InvalidReplicationFactorError(BrokerError, code=38):
    """The replication factor must be at least 1, and at most the number of brokers."""


class InvalidReplicaAssignmentError(BrokerError, code=39):
    """The assignment of replicas to brokers is not possible."""


class InvalidConfigError(BrokerError, code=40):
    """The broker does not accept this setting of a topic or broker."""


class NotControllerError(BrokerError, code=41, action=Action.REFRESH_METADATA):
    """Another broker controls the cluster now."""


class InvalidRequestError(BrokerError, code=42):
    """The broker found the request malformed or contradictory: its log may say why."""


class PolicyViolationError(BrokerError, code=44):
    """A policy of the cluster forbids this."""


class OutOfOrderSequenceNumberError(BrokerError, code=45):
    """The broker misses earlier batches of this idempotent producer: records before this may be lost."""


class DuplicateSequenceNumberError(BrokerError, code=46):
    """The broker has this batch of an idempotent producer already."""


class InvalidProducerEpochError(BrokerError, code=47):
    """A newer producer with the same id has taken over from this one."""


class TransactionalIdAuthorizationFailedError(BrokerError, code=53):
    """This client may not use the transactional id, or the broker does not support transactions yet."""


class KafkaStorageError(BrokerError, code=56, action=Action.REFRESH_METADATA):
    """The broker's disk is full or failing: nothing was acknowledged. Check the disk; its log says more."""


class LogDirNotFoundError(BrokerError, code=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailedError(BrokerError, code=58, action=Action.FATAL):
    """The broker did not accept the user's name and credentials."""


class UnknownProducerIdError(BrokerError, code=59):
    """The broker has forgotten this producer, as all of its records were deleted or are too old."""


class NonEmptyGroupError(BrokerError, code=68):
    """The group has members: stop them first."""


class GroupIdNotFoundError(BrokerError, code=69):
    """There is no such group: check its name."""


class FetchSessionIdNotFoundError(BrokerError, code=70, action=Action.RETRY):
    """The broker has dropped this fetch session: fetch again with a new one."""


class InvalidFetchSessionEpochError(BrokerError, code=71, action=Action.RETRY):
    """The fetch session is out of step: fetch again with a new one."""


class TopicDeletionDisabledError(BrokerError, code=73):
    """The broker's delete.topic.enable forbids deleting topics."""


class FencedLeaderEpochError(BrokerError, code=74, action=Action.REFRESH_METADATA):
    """The client's metadata is older than the partition's leader."""


class UnknownLeaderEpochError(BrokerError, code=75, action=Action.RETRY):
    """The client's metadata is newer than what this broker knows."""


class UnsupportedCompressionTypeError(BrokerError, code=76):
    """The records are compressed in a way that this version of the request cannot carry."""


class OffsetNotAvailableError(BrokerError, code=78, action=Action.RETRY):
    """The partition's new leader does not know the end of the log yet."""


class MemberIdRequiredError(BrokerError, code=79, action=Action.REJOIN):
    """The coordinator has given the member an id: it must join again with it."""


class GroupMaxSizeReachedError(BrokerError, code=81):
    """The group is full: stop a member, or raise the broker's group.max.size."""


class FencedInstanceIdError(BrokerError, code=82, action=Action.FATAL):
    """Another member has joined with this group_instance_id: close this one, and give each its own."""


class ElectionNotNeededError(BrokerError, code=84):
    """The partition has the leader it should have."""


class NoReassignmentInProgressError(BrokerError, code=85):
    """The partition is not being moved."""


class GroupSubscribedToTopicError(BrokerError, code=86):
    """The group is subscribed to this topic, so its offsets stay: stop its members first."""


class InvalidRecordError(BrokerError, code=87):
    """The broker refuses a record of this batch: for example, one without a key in a compacted topic."""


class UnstableOffsetCommitError(BrokerError, code=88, action=Action.RETRY):
    """An open transaction has yet to commit offsets of this group."""


class ThrottlingQuotaExceededError(BrokerError, code=89, action=Action.RETRY):
    """The broker throttles this kind of request."""


class ProducerFencedError(BrokerError, code=90, action=Action.FATAL):
    """A newer producer has the same transactional_id: close this one."""


class UnknownTopicIdError(BrokerError, code=100, action=Action.REFRESH_METADATA):
    """The broker has no topic with this id: it was deleted, perhaps to be created again."""


class InconsistentTopicIdError(BrokerError, code=103, action=Action.REFRESH_METADATA):
    """The topic was deleted and created again: its id has changed."""


class FetchSessionTopicIdError(BrokerError, code=106, action=Action.RETRY):
    """The fetch session mixes topic names and ids: fetch again with a new one."""


class RebootstrapRequiredError(BrokerError, code=129, action=Action.REFRESH_METADATA):
    """The client's metadata is of no use any more: start again from bootstrap_servers."""


def class_name(code: ErrorCode) -> str:
    """Return the name of a code's class: OFFSET_OUT_OF_RANGE is OffsetOutOfRangeError."""
    words = code.name.removesuffix("_EXCEPTION").removesuffix("_ERROR").split("_")
    return "".join(word.capitalize() for word in words) + "Error"


def _define_rare_errors() -> None:
    """Make the classes of the codes that few programs ever see, such as those between brokers."""
    for code, action, meaning in RARE_ERRORS:
        name = class_name(code)
        members = {"__doc__": meaning, "__module__": __name__}
        globals()[name] = type(name, (BrokerError,), members, code=code, action=action)


_define_rare_errors()
