"""Consumers that are kept for the next task: Spark's Python workers live longer than one.

To connect, negotiate versions and start a thread takes longer than to read a small range. A consumer in the
pool reads nothing, and holds no data: it is a connection with what is known of the cluster.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from millstream.consumer import Consumer

_MOST_IDLE: Final = 4
"""More than that are not kept: the oldest goes."""

_lock: Final = threading.Lock()
_idle: Final[list[tuple[int, str, Consumer]]] = []


@contextmanager
def borrowed(settings: Mapping[str, object]) -> Iterator[Consumer]:
    """A consumer with these settings that is assigned nothing: an idle one, or a new one.

    After an error it is closed, as nobody knows what it stands for then.
    """
    key = repr(sorted(settings.items()))
    consumer = _take(key) or Consumer(settings)
    healthy = False
    try:
        yield consumer
        healthy = True
    except GeneratorExit:  # whoever read from it has enough, and nothing went wrong
        healthy = True
        raise
    finally:
        if healthy:
            _put_back(key, consumer)
        else:
            consumer.close(timeout=1.0)


def _take(key: str) -> Consumer | None:
    with _lock:
        for place, (process, other, consumer) in enumerate(_idle):
            # A worker is forked: what its parent has kept is of no use to it.
            if process == os.getpid() and other == key:
                del _idle[place]
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


def close_idle() -> None:
    """Close all idle consumers of this process."""
    with _lock:
        idle, _idle[:] = list(_idle), []
    for process, _, consumer in idle:
        if process == os.getpid():
            consumer.close(timeout=1.0)
