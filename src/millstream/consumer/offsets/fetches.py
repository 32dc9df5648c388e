"""Fetches of committed offsets, repeated until they succeed, fail or time out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from millstream.client.targets import CoordinatorOf
from millstream.consumer.membership.reactions import is_retriable
from millstream.consumer.offsets.requests import offset_fetch, read_fetched
from millstream.consumer.offsets.values import CommittedFetched, CommittingMember, Event
from millstream.consumer.sends import RetryDelay, Send
from millstream.errors import (
    Action,
    BrokerError,
    ErrorCode,
    MillstreamError,
    MillstreamTimeoutError,
    for_code,
)
from millstream.model import OffsetAndMetadata, TopicPartition
from millstream.wire.messages.group_offsets import OffsetFetchRequest, OffsetFetchResponse


@dataclass(slots=True)
class PendingFetch:
    """One fetch of committed offsets."""

    fetch_id: int
    left: set[TopicPartition]
    """The partitions that have not been answered for."""
    deadline_ms: int
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    attempts: int = 0
    retry_at_ms: int = 0
    token: int | None = None


class CommittedFetches:
    """All fetches of committed offsets that have not ended."""

    def __init__(
        self, group: CommittingMember, group_id: str, delay_ms: RetryDelay, request_timeout_ms: int
    ) -> None:
        self._group = group
        self._group_id = group_id
        self._delay_ms = delay_ms
        self._request_timeout_ms = request_timeout_ms
        self._pending: dict[int, PendingFetch] = {}
        self._by_token: dict[int, PendingFetch] = {}
        self._events: list[Event] = []
        self._last_id = 0

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def ask(self, partitions: Iterable[TopicPartition], deadline_ms: int) -> int:
        """Begin to ask; a CommittedFetched with the returned id ends it."""
        self._last_id += 1
        self._pending[self._last_id] = PendingFetch(self._last_id, set(partitions), deadline_ms)
        return self._last_id

    def due(self, now_ms: int, new_token: Callable[[], int]) -> list[Send]:
        return [
            self._send(fetch, new_token())
            for fetch in list(self._pending.values())
            if fetch.token is None and self._is_ready(fetch, now_ms)
        ]

    def _is_ready(self, fetch: PendingFetch, now_ms: int) -> bool:
        """Whether it can be sent now. Ends it where it cannot be sent at all."""
        if not fetch.left:
            self._end(fetch)
        elif self._group.error is not None:
            self._end(fetch, self._group.error)
        elif now_ms >= fetch.deadline_ms:
            self._end(fetch, MillstreamTimeoutError("The committed offsets could not be read in time"))
        elif now_ms >= fetch.retry_at_ms:
            self._group.need_coordinator()
            return self._group.coordinator is not None
        return False

    def _send(self, fetch: PendingFetch, token: int) -> Send:
        fetch.token = token
        fetch.attempts += 1
        self._by_token[token] = fetch
        build = offset_fetch(self._group_id, fetch.left)
        return Send(token, CoordinatorOf(self._group_id), build, OffsetFetchRequest, self._request_timeout_ms)

    def next_wake_ms(self) -> int | None:
        has_coordinator = self._group.coordinator is not None
        moments = [
            min(fetch.deadline_ms, fetch.retry_at_ms) if has_coordinator else fetch.deadline_ms
            for fetch in self._pending.values()
            if fetch.token is None
        ]
        return min(moments, default=None)

    # ---- answers ----

    def receive(self, token: int, response: OffsetFetchResponse, now_ms: int) -> bool:
        """Take an answer; False when the token is not one of a fetch."""
        fetch = self._by_token.pop(token, None)
        if fetch is None:
            return False
        fetch.token = None
        answer = read_fetched(response)
        if answer.error_code:
            self._refused(fetch, answer.error_code, now_ms)
            return True
        fetch.found.update(answer.offsets)
        fetch.left.difference_update(answer.offsets)
        if not fetch.left:
            self._end(fetch)
            return True
        refused = answer.errors.items()
        final = [(p, code) for p, code in sorted(refused) if _is_final(code)]
        if final:
            partition, code = final[0]
            self._end(fetch, for_code(code)(str(partition)))
        else:
            self._try_again(fetch, now_ms)
        return True

    def _refused(self, fetch: PendingFetch, code: int, now_ms: int) -> None:
        error_type: type[BrokerError] = for_code(code)
        if error_type.action is Action.FIND_COORDINATOR:
            self._group.coordinator_lost(error_type.meaning, now_ms)
        if error_type.action.retriable:
            self._try_again(fetch, now_ms)
        else:
            self._end(fetch, error_type(f"group {self._group_id!r}"))

    def failed(self, token: int, error: Exception, now_ms: int) -> bool:
        """A question got no answer. False when the token is not one of a fetch."""
        fetch = self._by_token.pop(token, None)
        if fetch is None:
            return False
        fetch.token = None
        if is_retriable(error):
            self._group.coordinator_lost(str(error) or type(error).__name__, now_ms)
            self._try_again(fetch, now_ms)
        else:
            self._end(fetch, error if isinstance(error, MillstreamError) else MillstreamError(repr(error)))
        return True

    def _try_again(self, fetch: PendingFetch, now_ms: int) -> None:
        fetch.retry_at_ms = now_ms + self._delay_ms(fetch.attempts)

    def _end(self, fetch: PendingFetch, error: MillstreamError | None = None) -> None:
        del self._pending[fetch.fetch_id]
        found = dict(fetch.found) if error is None else {}
        self._events.append(CommittedFetched(fetch.fetch_id, found, error))


def _is_final(code: int) -> bool:
    """Whether asking again is useless: the offsets of a deleted topic do not come back."""
    return code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not for_code(code).action.retriable
