"""Loads compiled encoders and decoders on a background thread, so that no caller waits for numba."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol

from millstream.wire.records.jit import K

log = logging.getLogger("millstream.compile")

loading: Final = threading.RLock()
"""Held while compiled loops are loaded.

A fork waits for it: a child would inherit the locks of half-imported modules, and could not release them.
"""
_FORK_S: Final = 60.0
_forking = threading.local()


class Loadable(Protocol[K]):
    """Holds compiled loops once they are loaded, and the function to call when they are worth it."""

    kernels: K | None
    load: Callable[[], None] | None


class BackgroundLoad(Generic[K]):
    """Loads one set of loops, at most once in a process."""

    def __init__(self, loops: Loadable[K], load: Callable[[], K], name: str) -> None:
        self._loops = loops
        self._load = load
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def on_volume(self) -> None:
        """From now on, load the loops once there is enough work for them."""
        self._loops.load = self.begin

    def begin(self) -> None:
        """Start loading, unless it has started already."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="millstream-compiling", daemon=True)
                thread.start()
                self._thread = thread

    def wait(self, timeout: float | None = None) -> K | None:
        """Load the loops and wait for them; None if that takes longer than ``timeout`` seconds, or fails."""
        if self._loops.kernels is None:
            self.begin()
            assert self._thread is not None, "it has begun"
            self._thread.join(timeout)
        return self._loops.kernels

    def load_now(self) -> None:
        """Load the loops on this thread; raises what loading raises."""
        self._loops.kernels = self._load()

    def _run(self) -> None:
        try:
            with loading:
                self._loops.kernels = self._load()
        except Exception:  # plain Python does the same work
            log.warning("the compiled %s cannot be loaded, plain Python is slower", self._name, exc_info=True)


def _before_fork() -> None:
    _forking.waited = loading.acquire(timeout=_FORK_S)


def _after_fork() -> None:
    if _forking.waited:
        loading.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
