"""Keeps consumers for the next task of a Python worker.

Connecting, negotiating versions and starting a thread take longer than reading a small range. A consumer in
the pool reads nothing and holds no data: it is a connection with metadata.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from millstream.consumer import Consumer

_MOST_IDLE: Final = 4
"""If more are idle, the oldest is closed."""

_lock: Final = threading.Lock()
_idle: Final[list[tuple[int, str, Consumer]]] = []


@contextmanager
def borrowed(settings: Mapping[str, object]) -> Iterator[Consumer]:
    """A consumer with these settings and no assignment: an idle one, or a new one.

    After an error it is closed, as its state is unknown.
    """
    key = repr(sorted(settings.items()))
    consumer = _take(key) or Consumer(settings)
    healthy = False
    try:
        yield consumer
        healthy = True
    except GeneratorExit:  # the reader stopped early, without an error
        healthy = True
        raise
    finally:
        if healthy:
            _put_back(key, consumer)
        else:
            consumer.close(timeout=1.0)


def _take(key: str) -> Consumer | None:
    with _lock:
        for index, (process, other, consumer) in enumerate(_idle):
            # A forked worker cannot use the connections of its parent.
            if process == os.getpid() and other == key:
                del _idle[index]
                return consumer
    return None


def _put_back(key: str, consumer: Consumer) -> None:
    consumer.assign(())
    with _lock:
        _idle.append((os.getpid(), key, consumer))
        surplus = [_idle.pop(0) for _ in range(len(_idle) - _MOST_IDLE)]
    for process, _, oldest in surplus:
        if process == os.getpid():
            oldest.close(timeout=1.0)
