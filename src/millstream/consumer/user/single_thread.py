"""SingleThread: lets one thread at a time into a consumer, and raises ConcurrentAccessError in the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from millstream.errors import ConcurrentAccessError

P = ParamSpec("P")
T = TypeVar("T")


class SingleThread:
    """A context that one thread may enter, more than once, while all others are refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self.entries = 0
        """How often it was entered. An unchanged count means that the user did nothing in between."""

    def __enter__(self) -> None:
        self.entries += 1
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return
        if not self._lock.acquire(blocking=False):
            raise ConcurrentAccessError(
                "another thread is using this consumer: give each thread a consumer of its own. "
                "Only wakeup() may be called from any thread"
            )
        self._owner = me
        self._depth = 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    def lend(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``method`` on this thread on behalf of the owner, which waits for it."""
        owner, self._owner = self._owner, threading.get_ident()
        try:
            return method(*args, **kwargs)
        finally:
            self._owner = owner
