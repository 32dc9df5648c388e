"""Loads the compiled decoder on a thread of its own, so that nobody waits for a compiler."""

from __future__ import annotations

import logging
import threading

from millstream.client.compiling import loading
from millstream.consumer.kernels import decoder
from millstream.wire.decode import Kernels, load

log = logging.getLogger("millstream.consumer")

_lock = threading.Lock()
_threads: list[threading.Thread] = []


def load_on_volume() -> None:
    """From now on, load the compiled loops as soon as they are worth it."""
    decoder.load = load_in_background


def load_in_background() -> None:
    """Begin to load the compiled loops, if nobody has yet."""
    if _threads:
        return
    with _lock:
        if not _threads:
            thread = threading.Thread(target=_load, name="millstream-compiling", daemon=True)
            thread.start()
            _threads.append(thread)


def wait(timeout: float | None = None) -> Kernels | None:
    """Load the compiled loops, and wait for them; None if that takes longer, or cannot be done."""
    load_in_background()
    _threads[0].join(timeout)
    return decoder.kernels


def _load() -> None:
    try:
        with loading:
            decoder.kernels = load()
    except Exception:  # the plain decoder does the same
        log.warning("the compiled decoder cannot be loaded: reading will be slow", exc_info=True)
