"""The one thread of a client for input and output, and how it ends.

The thread is a daemon: a client that was not closed cannot keep the interpreter alive. After a fork, a child
has no such thread and shares the parent's sockets, so every use of the client raises ForkedError there.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from millstream.errors import ClosedError, MillstreamTimeoutError, MisuseError
from millstream.net.reactor import Reactor

T = TypeVar("T")

_living: weakref.WeakSet[IoThread] = weakref.WeakSet()


class IoThread:
    """A thread that runs a reactor, from the first use until ``stop``."""

    def __init__(self, name: str) -> None:
        self.reactor = Reactor()
        self.name = name
        self._thread = threading.Thread(target=self._run, name=f"millstream-{name}", daemon=True)
        self._stopping = False
        self.refusal: MisuseError | None = None
        """Why the client may no longer be used; None while it may."""
        self.on_fork: list[Callable[[], None]] = []
        """What else to do in a forked child, such as replacing locks that the parent's threads hold."""
        _living.add(self)

    def start(self) -> None:
        self._thread.start()

    def clock(self) -> float:
        """Monotonic seconds, for threads that wait for this one."""
        return time.monotonic()

    def condition(self) -> threading.Condition:
        """A lock that this thread and others share, and can wait on."""
        return threading.Condition(threading.RLock())

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread, where waiting for it would deadlock."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """Raise ClosedError after a close, and ForkedError in a forked child."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def check_running(self) -> None:
        """As ``check``, but passes while a client is still closing."""
        if self.refusal is not None and (self._stopping or self.is_forked):
            raise self.refusal

    def check_may_wait(self) -> None:
        """As ``check``, and raise MisuseError on this thread, which cannot wait for itself."""
        self.check()
        if self.is_current:
            raise MisuseError(
                "this call waits for the client's I/O thread, so it cannot be made in a callback there: "
                "make it in a thread of yours"
            )

    def submit(self, work: Callable[[], None]) -> None:
        """Run on the thread soon."""
        self.check()
        self.reactor.call_threadsafe(work)

    def run(self, work: Callable[[], T], timeout_s: float | None = None) -> T:
        """Run on the thread, and wait for what it returns or raises."""
        self.check_may_wait()
        outcome: Future[T] = Future()

        def resolve() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                outcome.set_exception(error)

        self.reactor.call_threadsafe(resolve)
        try:
            return outcome.result(timeout_s)
        except TimeoutError:
            if outcome.done():
                raise
            raise MillstreamTimeoutError("the client's I/O thread did not answer in time") from None

    def refuse(self, reason: MisuseError) -> None:
        """From now on every use raises ``reason``; the first one stays."""
        if self.refusal is None:
            self.refusal = reason

    def stop(self, timeout_s: float | None) -> bool:
        """End the thread and wait for it; False if it has not ended in time (it still will)."""
        self.refuse(ClosedError())
        if not self._stopping:
            self._stopping = True
            self.reactor.stop()
        if self._thread.ident is None or self.is_current:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_forked(self) -> bool:
        return isinstance(self.refusal, ForkedError)

    def _run(self) -> None:
        try:
            self.reactor.run()
        finally:
            self.reactor.close()

    def after_fork_in_child(self) -> None:
        self.refusal = ForkedError(
            "this client was created before the process forked and belongs to the parent: "
            "create a new one in each child process"
        )
        for renew in self.on_fork:
            renew()


class ForkedError(MisuseError):
    """The client belongs to the parent process: create a new one in each child process."""


def _after_fork_in_child() -> None:
    for thread in list(_living):
        thread.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
