"""Ending a load: the first Ctrl-C or SIGTERM ends it cleanly, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """The load shall end: there is nothing to wait for any more."""


class StopRequest:
    """Whether a load shall end, and what helps it to."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._abort_cycle: Callable[[], None] = lambda: None
        self.signal: int | None = None
        """Which signal asked for it."""

    @property
    def is_requested(self) -> bool:
        return self._wanted.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait that long, or until it is wanted."""
        return self._wanted.wait(timeout_s)

    def on_request(self, abort_cycle: Callable[[], None]) -> None:
        """What breaks off the present work; called on a thread of its own."""
        self._abort_cycle = abort_cycle

    def request(self) -> None:
        """End as soon as that can be done cleanly. From any thread; not from a signal handler."""
        if self._wanted.is_set():
            return
        self._wanted.set()
        threading.Thread(target=self._abort_cycle, name="millstream-load-stop", daemon=True).start()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM request it; a second one raises KeyboardInterrupt at once.

        Only the main thread can handle signals: elsewhere nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        # Not here: a handler runs in the middle of anything, perhaps of a call to Spark, perhaps of a wait
        # that holds the very lock which this needs.
        threading.Thread(target=self.request, name="millstream-load-signal", daemon=True).start()
