"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer reads, and sends only changes.

A session knows which of its partitions may have news (``CachedSession.changed``), so a fetch costs what has
changed, not what the session holds. A partition without news is watched: its next change puts it there.

A full cache drops a session that was unused for EVICTION_MS; else, for a session with more partitions, the
smallest one that is older than that. Its consumer gets FETCH_SESSION_ID_NOT_FOUND and starts a new one. Where
neither is there, the new consumer gets no session: taking turns would only make every fetch a full one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millstream.broker.served_topics import Partition
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


class WaitingFetch(Protocol):
    """A fetch that waits for news of a session."""

    def appended(self, size: int) -> None: ...

    def changed(self) -> None: ...


@dataclass(slots=True, eq=False)
class CachedPartition:
    """One partition of a session: what the consumer requested, and what it was sent last."""

    key: Key
    session: CachedSession
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    failed: bool = False
    topic_name: str = ""
    """The topic's name when its id was last found."""
    _watched: Partition | None = None

    def has_news(self, answer: PartitionData) -> bool:
        """Return whether an incremental answer must contain this partition."""
        return (
            bool(answer.records)
            or answer.error_code != 0
            or self.failed
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
        )

    def sent(self, answer: PartitionData) -> None:
        """Remember what the consumer was told."""
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        # After an error the partition is sent once more, so that the consumer learns that the error is gone.
        self.failed = answer.error_code != 0

    # -- changes of the partition

    def watch(self, partition: Partition | None) -> None:
        """Be told of the changes of ``partition`` from now on; None: of none."""
        if partition is not self._watched:
            if self._watched is not None:
                self._watched.watchers.discard(self)
            self._watched = partition
            if partition is not None:
                partition.watchers.add(self)

    def appended(self, size: int) -> None:
        """``size`` bytes were appended to the partition."""
        self._changed()
        for fetch in self.session.parked:
            fetch.appended(size)

    def changed(self) -> None:
        """The partition was deleted, cut or truncated."""
        self._changed()
        for fetch in self.session.parked:
            fetch.changed()

    def _changed(self) -> None:
        self.session.changed[self.key] = self
        if not self.session.parked:  # then it is read anyway, and until then appends need not tell it again
            self.watch(None)


@dataclass(slots=True, eq=False)
class CachedSession:
    """The partitions that one consumer reads. Those of a request without a session have the id 0."""

    session_id: int
    created_ms: int
    used_ms: int
    epoch: int = 1
    by_id: bool = False
    """Whether its requests name topics by id. This cannot change, because the keys would."""
    partitions: dict[Key, CachedPartition] = field(default_factory=dict)
    changed: dict[Key, CachedPartition] = field(default_factory=dict)
    """The partitions to read, in this order: all that may have news."""
    parked: set[WaitingFetch] = field(default_factory=set)
    ended: bool = False

    def add(self, key: Key, wanted: FetchPartition) -> None:
        """Read a partition, or read it from another place."""
        cached = self.partitions.get(key)
        if cached is None:
            cached = self.partitions[key] = CachedPartition(key, self, wanted)
        else:
            cached.request = wanted
        self.changed[key] = cached

    def forget(self, key: Key) -> None:
        cached = self.partitions.pop(key, None)
        if cached is not None:
            cached.watch(None)
            self.changed.pop(key, None)

    def settle(self, key: Key) -> None:
        """The consumer knows all about this partition: do not read it before it has changed."""
        self.changed.pop(key, None)

    def rotate(self, key: Key) -> None:
        """Move a partition that was read to the end, so that the others have their turn."""
        cached = self.changed.pop(key, None)
        if cached is not None:
            self.changed[key] = cached

    def end(self) -> None:
        """No request follows: watch nothing, once no fetch waits."""
        self.ended = True
        self.release()

    def release(self) -> None:
        """A fetch waits no more."""
        if self.ended and not self.parked:
            for cached in self.partitions.values():
                cached.watch(None)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What to read for one request, and how to answer it."""

    session: CachedSession
    incremental: bool = False
    error_code: int = 0

    @property
    def session_id(self) -> int:
        return self.session.session_id


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
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != session.by_id:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._sessions.move_to_end(session.session_id)
        session.used_ms = now_ms
        session.epoch = session.epoch + 1 if session.epoch < 0x7FFFFFFF else 1
        _update(session, request)
        return FetchContext(session, incremental=True)

    def look_at_all(self) -> None:
        """Read every partition again: what consumers may read has changed."""
        for session in self._sessions.values():
            for cached in list(session.partitions.values()):
                cached.changed()

    def _plan_full(self, request: FetchRequest, now_ms: int, by_id: bool) -> FetchContext:
        self.drop(request.session_id)
        session = CachedSession(0, now_ms, now_ms, by_id=by_id)
        _update(session, request)
        size = len(session.partitions)
        if request.session_epoch == FINAL_EPOCH or not size or not self._has_room(size, now_ms):
            session.ended = True
        else:
            session.session_id = self._new_id()
            self._sessions[session.session_id] = session
        return FetchContext(session)

    def drop(self, session_id: int) -> None:
        """Forget a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Return whether there is room for a session with ``size`` partitions, if need be by dropping one."""
        if len(self._sessions) < self._capacity:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.used_ms > EVICTION_MS:
            self.drop(oldest.session_id)
            return True
        if now_ms < self._refused_until_ms and size <= self._refused_size:
            return False
        settled = [each for each in self._sessions.values() if now_ms - each.created_ms > EVICTION_MS]
        smallest = min(settled, key=lambda each: len(each.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= size:
            self._refused_until_ms, self._refused_size = now_ms + _LOOK_AGAIN_MS, size
            return False
        self.drop(smallest.session_id)
        return True

    def _new_id(self) -> int:
        while (number := self._id_source()) in self._sessions or number <= 0:
            continue
        return number


def _refused(error_code: int) -> FetchContext:
    return FetchContext(CachedSession(0, 0, 0, ended=True), error_code=error_code)


def _update(session: CachedSession, request: FetchRequest) -> None:
    """Apply what a request adds, changes and forgets."""
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            session.forget((forgotten.topic, forgotten.topic_id, partition))
    for topic in request.topics:
        for wanted in topic.partitions:
            session.add((topic.topic, topic.topic_id, wanted.partition), wanted)
