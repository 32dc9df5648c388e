"""Stopping a load: the first Ctrl-C or SIGTERM ends it cleanly, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """A stop was requested: stop waiting."""


class StopRequest:
    """Whether a load was asked to stop; asking aborts its cycle."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._abort_cycle: Callable[[], None] = lambda: None
        self.signal: int | None = None
        """The signal that requested it, if one did."""

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s``; returns whether a stop was requested."""
        return self._requested.wait(timeout_s)

    def on_request(self, abort_cycle: Callable[[], None]) -> None:
        """``abort_cycle`` is called on a thread of its own when a stop is requested."""
        self._abort_cycle = abort_cycle

    def request(self) -> None:
        """Stop as soon as that can be done cleanly. From any thread, but not from a signal handler."""
        if self._requested.is_set():
            return
        self._requested.set()
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
        # Not here: a handler may interrupt a call to Spark, or a wait that holds the lock which this needs.
        threading.Thread(target=self.request, name="millstream-load-signal", daemon=True).start()
