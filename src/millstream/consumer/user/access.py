"""The ways into a consumer: one thread at a time, while it is open, with its lock where cores are touched.

A consumer is not for sharing, and says so instead of going wrong.
"""

from __future__ import annotations

import threading
from types import TracebackType

from millstream.client.client import Client
from millstream.consumer.user.progress import Progress
from millstream.errors import ConcurrentAccessError, ConsumerClosedError


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


class Entrance:
    """A context: alone in an open consumer, with its lock.

    ``alone`` by itself is for calls that wait, and hold the lock for moments only; they ``check_open``.
    """

    def __init__(self, client: Client, lock: threading.Condition) -> None:
        self.alone = SingleThread()
        self.is_closed = False
        self._lock = lock
        self._io = client.io

    def check_open(self) -> None:
        """Raise unless the consumer is open, and was made in this process."""
        if self.is_closed:
            raise ConsumerClosedError
        self._io.check()

    def __enter__(self) -> None:
        self.alone.__enter__()
        try:
            self.check_open()
            self._lock.acquire()
        except BaseException:
            self.alone.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self.alone.__exit__(kind, error, trace)


class Change:
    """As ``Entrance``, to change what is read: first the rest of an iteration is given back, and afterwards
    the I/O thread hears of it.
    """

    def __init__(self, entrance: Entrance, progress: Progress, client: Client) -> None:
        self._entrance = entrance
        self._progress = progress
        self._client = client

    def __enter__(self) -> None:
        self._entrance.__enter__()
        try:
            self._progress.give_back()
        except BaseException:
            self._entrance.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entrance.__exit__(kind, error, trace)
        self._client.wake()
