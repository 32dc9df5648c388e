"""The event loop of one thread: ready sockets, timers, and calls from other threads.

Why not asyncio: a broker's reply is a header, a slice of a file and a footer. Here a connection passes them
to ``sendmsg`` and ``sendfile`` itself; asyncio's transports copy what the socket does not take at once, and
wrap each callback in a handle and a context.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from millstream.net.system import make_poller
from millstream.wire.memory import RecycledMemory

log = logging.getLogger("millstream.net")

READABLE: Final = 0x001
WRITABLE: Final = 0x004
"""Interest in a socket; the values of EPOLLIN and EPOLLOUT, and of POLLIN and POLLOUT."""

Callback = Callable[[], None]

_SCRATCH_BYTES: Final = 256 * 1024


class Timer:
    """A planned call, which ``cancel`` prevents."""

    __slots__ = ("callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callback) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callback | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return self.deadline_ms < other.deadline_ms


class Reactor:
    """Runs callbacks on one thread. Only ``call_threadsafe`` and ``stop`` may be used from another."""

    def __init__(self) -> None:
        self._poll = make_poller()
        self._watched: dict[int, Callable[[int], None]] = {}
        self._timers: list[Timer] = []
        self._from_threads: deque[Callback] = deque()
        self._deferred: list[Callback] = []
        self._stopping = False
        # The buffer that all connections of this loop receive into; other threads have loops of their own.
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.frame_memory = RecycledMemory()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._wake_pending = False
        self.watch(self._wake_reader, READABLE, self._drain_wakes)

    @staticmethod
    def now_ms() -> int:
        """Monotonic milliseconds: for deadlines, never for timestamps."""
        return time.monotonic_ns() // 1_000_000

    # --- sockets

    def watch(self, fd: int, interest: int, callback: Callable[[int], None]) -> None:
        """Call back with the ready events whenever the descriptor is ready for ``interest``."""
        self._watched[fd] = callback
        self._poll.register(fd, interest)

    def change_interest(self, fd: int, interest: int) -> None:
        self._poll.modify(fd, interest)

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # --- calls

    def call_at(self, deadline_ms: int, callback: Callback) -> Timer:
        """Call ``callback`` when ``now_ms`` has reached the deadline."""
        timer = Timer(deadline_ms, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_threadsafe(self, callback: Callback) -> None:
        """Call ``callback`` soon on the loop's thread, in order. For any thread or signal handler.

        There is no lock, because a signal handler could interrupt the thread that holds it. The call is
        queued before ``_wake_pending`` is read, and the flag is cleared before the queue is read: a call that
        finds the flag set is in the queue when the pending wake reads it.
        """
        self._from_threads.append(callback)
        if self._wake_pending:
            return
        self._wake_pending = True
        try:
            os.write(self._wake_writer, b"\0")
        except OSError as error:  # the reactor was closed meanwhile
            log.debug("a closed reactor was called: %s", error)

    def defer(self, callback: Callback) -> None:
        """Call ``callback`` at the end of this turn, after all ready sockets were served."""
        self._deferred.append(callback)

    # --- running

    def run(self) -> None:
        """Serve until ``stop``. An exception in a callback is logged, and the loop continues."""
        while not self._stopping:
            for fd, events in self._poll.poll(self._timeout()):
                callback = self._watched.get(fd)
                if callback is not None:
                    try:
                        callback(events)
                    except Exception:
                        log.exception("a socket's callback failed")
            self._run_timers()
            self._run_calls()

    def stop(self) -> None:
        """Make ``run`` return soon. For any thread."""
        self.call_threadsafe(self._stop)

    def close(self) -> None:
        """Close the loop's own descriptors. Sockets belong to those who watch them."""
        self._poll.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _stop(self) -> None:
        self._stopping = True

    def _timeout(self) -> float:
        """Return how many seconds to sleep: 0 if calls wait, until the next timer, or for ever (-1)."""
        if self._deferred or self._from_threads:
            return 0.0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1.0
        return max(0.0, (self._timers[0].deadline_ms - time.monotonic_ns() / 1_000_000) / 1000)

    def _run_timers(self) -> None:
        timers = self._timers
        if not timers:
            return
        now_ms = self.now_ms()
        while timers and timers[0].deadline_ms <= now_ms:
            callback = heapq.heappop(timers).callback
            if callback is not None:
                self._run(callback)

    def _run_calls(self) -> None:
        calls = self._from_threads
        for _ in range(len(calls)):
            self._run(calls.popleft())
        while self._deferred:
            deferred, self._deferred = self._deferred, []
            for callback in deferred:
                self._run(callback)

    @staticmethod
    def _run(callback: Callback) -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback of the event loop failed")

    def _drain_wakes(self, events: int) -> None:
        # First the pipe, then the flag: in the other order, a byte written in between would be read, and the
        # flag that it set would keep later calls from waking the loop. The queue is read after both.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)
        self._wake_pending = False
