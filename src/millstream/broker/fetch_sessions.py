"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads, and sends only changes.

A full cache drops a session that was unused for EVICTION_MS; else, for a session with more partitions, the
smallest one that is older than that. Its consumer gets FETCH_SESSION_ID_NOT_FOUND and starts a new one. Where
neither is there, the new consumer gets no session: taking turns would only make every fetch a full one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.errors import ErrorCode
from millstream.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

FINAL_EPOCH = -1
"""The epoch of a request without a session, or that ends one."""
INITIAL_EPOCH = 0
EVICTION_MS = 120_000
_LOOK_AGAIN_MS = 1000
"""How long a search for a session to drop that found none holds for others of that size."""

Key = tuple[str, bytes, int]
"""Topic name, topic id and partition, exactly as the client named them: one of the first two may be empty."""


@dataclass(slots=True)
class CachedPartition:
    """One partition of a session: what the consumer requested, and what it was sent last."""

    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    failed: bool = False
    topic_name: str = ""
    """The topic's name when its id was last found."""

    def has_changed(self, answer: PartitionData) -> bool:
        """Return whether an incremental answer must contain this partition; remember what it says."""
        news = (
            bool(answer.records)
            or answer.error_code != 0
            or self.failed
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
        )
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        # After an error the partition is sent once more, so that the consumer learns that the error is gone.
        self.failed = answer.error_code != 0
        return news


@dataclass(slots=True)
class CachedSession:
    """The partitions of one consumer, in the order in which they are read."""

    session_id: int
    created_ms: int
    used_ms: int
    epoch: int = 1
    by_id: bool = False
    """Whether its requests name topics by id. This cannot change, because the keys would."""
    partitions: OrderedDict[Key, CachedPartition] = field(default_factory=OrderedDict)

    def rotate(self, key: Key) -> None:
        """Move a partition that was read to the end, so that the others have their turn."""
        self.partitions.move_to_end(key)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What to read for one request, and how to answer it."""

    partitions: list[tuple[Key, CachedPartition]]
    session: CachedSession | None = None
    incremental: bool = False
    error_code: int = 0

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else 0


class FetchSessions:
    """The cache of sessions."""

    def __init__(self, capacity: int, id_source: Callable[[], int]) -> None:
        self._capacity = capacity
        self._id_source = id_source
        self._sessions: OrderedDict[int, CachedSession] = OrderedDict()  # in the order of their last use
        self._refused_until_ms = self._refused_size = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, now_ms: int, *, by_id: bool = False) -> FetchContext:
        """Find the session of a request: a new one, none, or that of an incremental request."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._plan_full(request, now_ms, by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != session.by_id:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._sessions.move_to_end(session.session_id)
        session.used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < 0x7FFFFFFF else 1
        _update(session, request)
        return FetchContext(list(session.partitions.items()), session, incremental=True)

    def _plan_full(self, request: FetchRequest, now_ms: int, by_id: bool) -> FetchContext:
        self._sessions.pop(request.session_id, None)
        wanted = [(key, CachedPartition(partition)) for key, partition in _requested(request)]
        if request.session_epoch == FINAL_EPOCH or not wanted or not self._has_room(len(wanted), now_ms):
            return FetchContext(wanted)
        session = CachedSession(self._new_id(), now_ms, now_ms, by_id=by_id)
        session.partitions.update(wanted)
        self._sessions[session.session_id] = session
        return FetchContext(wanted, session)

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Return whether there is room for a session with ``size`` partitions, if need be by dropping one."""
        if len(self._sessions) < self._capacity:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.used_ms > EVICTION_MS:
            del self._sessions[oldest.session_id]
            return True
        if now_ms < self._refused_until_ms and size <= self._refused_size:
            return False
        settled = [each for each in self._sessions.values() if now_ms - each.created_ms > EVICTION_MS]
        smallest = min(settled, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            self._refused_until_ms, self._refused_size = now_ms + _LOOK_AGAIN_MS, size
            return False
        del self._sessions[smallest.session_id]
        return True

    def _new_id(self) -> int:
        while (number := self._id_source()) in self._sessions or number <= 0:
            continue
        return number


def _requested(request: FetchRequest) -> list[tuple[Key, FetchPartition]]:
    return [
        ((topic.topic, topic.topic_id, partition.partition), partition)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _update(session: CachedSession, request: FetchRequest) -> None:
    """Apply what an incremental request adds, changes and forgets."""
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            session.partitions.pop((forgotten.topic, forgotten.topic_id, partition), None)
    for key, wanted in _requested(request):
        cached = session.partitions.get(key)
        if cached is None:
            session.partitions[key] = CachedPartition(wanted)
        else:
            cached.request = wanted
