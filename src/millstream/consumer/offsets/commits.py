"""Commits in progress: in order, with the identity of the member that made them, never over a later one.

- A commit carries the identity (generation, member) that it was made with. If the member has lost or given up
  partitions since, it is stale and fails, even if the member is back with a new identity that the coordinator
  would accept: another member may have committed in between.
- An asynchronous commit is sent once; when its outcome is unknown, it fails. A synchronous one is
  repeated, but never for partitions of a later commit (commit ids rise).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.client.targets import CoordinatorOf
from millstream.consumer.membership.reactions import is_retriable
from millstream.consumer.membership.values import GroupMetadata
from millstream.consumer.membership.views import CommitIdentity
from millstream.consumer.offsets.requests import commit_codes, offset_commit
from millstream.consumer.offsets.values import CommitDone, CommittingMember, Event, Offsets
from millstream.consumer.sends import RetryDelay, Send
from millstream.errors import (
    Action,
    BrokerError,
    CommitFailedError,
    ErrorCode,
    MillstreamError,
    MillstreamTimeoutError,
    MisuseError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    TopicAuthorizationFailedError,
    for_code,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse

_ABOUT_THE_MEMBER: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""Errors that say something about who commits rather than about the commit."""

_ASK_ANOTHER: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)

_NO_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_TRIES_WITHOUT_TOPIC: Final = 3
"""How often an automatic commit is tried for a topic that is not there. Then it was deleted, most likely, and
going on would hold up the rebalance that waits for the commit."""


@dataclass(slots=True)
class PendingCommit:
    """One commit, until it ends."""

    commit_id: int
    """Also its place in the sequence of all commits."""
    offsets: Offsets
    identity: CommitIdentity
    deadline_ms: int
    repeats: bool
    """Whether it is tried until the deadline."""
    automatic: bool
    left: dict[TopicPartition, OffsetAndMetadata]
    """What is not stored yet."""
    attempts: int = 0
    retry_at_ms: int = 0
    token: int | None = None


class OffsetCommits:
    """All commits that have not ended."""

    def __init__(self, group: CommittingMember, delay_ms: RetryDelay, request_timeout_ms: int) -> None:
        self._group = group
        self._delay_ms = delay_ms
        self._request_timeout_ms = request_timeout_ms
        self._pending: dict[int, PendingCommit] = {}
        self._by_token: dict[int, PendingCommit] = {}
        self._latest: dict[TopicPartition, int] = {}
        self._events: list[Event] = []
        self._last_id = 0

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def make(self, offsets: Offsets, deadline_ms: int, *, repeats: bool, automatic: bool = False) -> int:
        """Begin a commit; a CommitDone with the returned id ends it."""
        for partition, offset in offsets.items():
            if offset.offset < 0:
                raise MisuseError(f"{partition}: the offset {offset.offset} cannot be committed")
        self._last_id += 1
        try:
            identity = self._group.commit_identity()
        except MillstreamError as error:
            self._events.append(CommitDone(self._last_id, offsets, error, automatic))
            return self._last_id
        commit = PendingCommit(
            self._last_id, offsets, identity, deadline_ms, repeats, automatic, left=dict(offsets)
        )
        self._pending[commit.commit_id] = commit
        self._latest.update(dict.fromkeys(offsets, commit.commit_id))
        return commit.commit_id

    def due(self, now_ms: int, new_token: Callable[[], int]) -> list[Send]:
        """The commits to send now, in the order in which they were made."""
        sends: list[Send] = []
        earlier = False
        for commit in list(self._pending.values()):
            if commit.token is None and self._is_ready(commit, earlier, now_ms):
                sends.append(self._send(commit, new_token()))
            earlier = earlier or commit.commit_id in self._pending
        return sends

    def _is_ready(self, commit: PendingCommit, earlier: bool, now_ms: int) -> bool:
        """Whether the commit can be sent now. Ends it where it cannot be sent at all."""
        if now_ms >= commit.deadline_ms:
            self._end(commit, _out_of_time(commit))
        elif not commit.left:
            # Nothing to commit: done when all that was committed before is.
            if not earlier:
                self._end(commit)
        elif now_ms >= commit.retry_at_ms and self._is_current(commit):
            self._group.need_coordinator()
            return self._group.coordinator is not None
        return False

    def _is_current(self, commit: PendingCommit) -> bool:
        """Whether the commit may still be stored. Ends it if not."""
        if commit.attempts and any(self._latest[p] > commit.commit_id for p in commit.left):
            self._end(commit, RetriableCommitFailedError("A later commit of the same partitions was made"))
            return False
        try:
            identity = self._group.commit_identity()
        except MillstreamError as error:
            self._end(commit, error)
            return False
        if identity.gave_up != commit.identity.gave_up:
            self._end(commit, _stale())
            return False
        commit.identity = identity
        return True

    def _send(self, commit: PendingCommit, token: int) -> Send:
        commit.token = token
        commit.attempts += 1
        self._by_token[token] = commit
        build = offset_commit(commit.identity.who, commit.left)
        return Send(
            token,
            CoordinatorOf(commit.identity.who.group_id),
            build,
            OffsetCommitRequest,
            self._request_timeout_ms,
        )

    def next_wake_ms(self) -> int | None:
        has_coordinator = self._group.coordinator is not None
        moments = [
            min(commit.deadline_ms, commit.retry_at_ms)
            if has_coordinator and commit.left
            else commit.deadline_ms
            for commit in self._pending.values()
            if commit.token is None
        ]
        return min(moments, default=None)

    # ---- answers ----

    def receive(self, token: int, response: OffsetCommitResponse, now_ms: int) -> bool:
        """Take an answer; False when the token is not one of a commit."""
        commit = self._by_token.pop(token, None)
        if commit is None:
            return False
        commit.token = None
        codes = commit_codes(response)
        refused: dict[TopicPartition, int] = {}
        for partition in list(commit.left):
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE:
                del commit.left[partition]
            else:
                refused[partition] = code
        if not refused:
            self._end(commit)
        else:
            self._refused(commit, refused, now_ms)
        return True

    def _refused(self, commit: PendingCommit, refused: dict[TopicPartition, int], now_ms: int) -> None:
        """The worst error decides: who commits, then what can never work, then what may work later."""
        codes = sorted(set(refused.values()))
        about_the_member = next((code for code in codes if code in _ABOUT_THE_MEMBER), None)
        final = next((code for code in codes if not for_code(code).action.retriable), None)
        if about_the_member is not None:
            self._end(commit, self._member_error(about_the_member, commit.identity.who, now_ms))
        elif final is not None:
            self._end(commit, _final_error(final, refused))
        elif commit.automatic and commit.attempts >= _TRIES_WITHOUT_TOPIC and codes == [_NO_TOPIC]:
            self._end(commit, _final_error(_NO_TOPIC, refused))
        else:
            for code in codes:
                if code in _ASK_ANOTHER:
                    self._group.coordinator_lost(for_code(code).meaning, now_ms)
            self._try_again(commit, for_code(codes[0])(), now_ms)

    def _member_error(self, code: int, who: GroupMetadata, now_ms: int) -> MillstreamError:
        if not who.member_id:
            return CommitFailedError(
                f"The offsets were not committed: the group {who.group_id!r} has members. "
                "A consumer that uses assign() needs a group_id of its own"
            )
        self._group.commit_refused(code, who, now_ms)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return RebalanceInProgressError("The offsets were not committed: call poll(), then commit again")
        try:
            self._group.commit_identity()
        except MillstreamError as error:
            return error
        return _stale()

    def failed(self, token: int, error: Exception, now_ms: int) -> bool:
        """A commit got no answer: it may be stored or not. False when the token is not one of a commit."""
        commit = self._by_token.pop(token, None)
        if commit is None:
            return False
        commit.token = None
        if is_retriable(error):
            self._group.coordinator_lost(str(error) or type(error).__name__, now_ms)
            self._try_again(commit, error, now_ms)
        else:
            self._end(commit, error if isinstance(error, MillstreamError) else MillstreamError(repr(error)))
        return True

    def _try_again(self, commit: PendingCommit, error: Exception, now_ms: int) -> None:
        if commit.repeats:
            commit.retry_at_ms = now_ms + self._delay_ms(commit.attempts)
            return
        failure = RetriableCommitFailedError(
            f"The offsets were not committed, as far as is known: {str(error) or type(error).__name__}. "
            "Commit again, with the newest offsets"
        )
        failure.__cause__ = error
        self._end(commit, failure)

    def _end(self, commit: PendingCommit, error: MillstreamError | None = None) -> None:
        del self._pending[commit.commit_id]
        self._events.append(CommitDone(commit.commit_id, commit.offsets, error, commit.automatic))


def _stale() -> CommitFailedError:
    return CommitFailedError(
        "The offsets were not committed: partitions have been given up or lost since, and may have another "
        "owner by now. Commit in on_revoked(), or more often"
    )


def _out_of_time(commit: PendingCommit) -> MillstreamError:
    if commit.repeats:
        return MillstreamTimeoutError(
            "The offsets were not committed in time: the coordinator did not answer"
        )
    return RetriableCommitFailedError("The offsets were not committed: the coordinator was not found in time")


def _final_error(code: int, refused: dict[TopicPartition, int]) -> BrokerError:
    error_type = for_code(code)
    named = sorted(partition for partition, found in refused.items() if found == code)
    if error_type is TopicAuthorizationFailedError:
        return error_type(", ".join(sorted({partition.topic for partition in named})))
    assert error_type.action is not Action.RETRY
    return error_type(", ".join(map(str, named)))
