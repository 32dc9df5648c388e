"""One thread at a time: a consumer is not for sharing, and says so instead of going wrong."""

from __future__ import annotations

import threading
from types import TracebackType

from millstream.errors import ConcurrentAccessError


class SingleThread:
    """A context that one thread may enter, again and again, and no other meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self.entries = 0
        """How often it was entered: two equal looks mean that nothing was done in between."""

    def __enter__(self) -> None:
        self.entries += 1
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return
        if not self._lock.acquire(blocking=False):
            raise ConcurrentAccessError(
                "another thread is using this consumer: give each thread a consumer of its own. "
                "Only wakeup() may be called from anywhere"
            )
        self._owner = me
        self._depth = 1

    def lend(self) -> int | None:
        """Let the calling thread in on behalf of the owner, which waits for it; returns the owner."""
        owner, self._owner = self._owner, threading.get_ident()
        return owner

    def take_back(self, owner: int | None) -> None:
        self._owner = owner

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()
