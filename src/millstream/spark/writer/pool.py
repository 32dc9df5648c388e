"""Keeps a producer for the next task of a Python worker, as Spark's own sink does.

Connecting, logging in and obtaining a producer id take longer than writing a small micro-batch. An idle
producer holds no records.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from millstream.producer import Producer

_lock: Final = threading.Lock()
_idle: Final[list[tuple[int, str, Producer]]] = []
"""At most one: the tasks of a worker follow each other, mostly with the same settings."""


@contextmanager
def borrowed_producer(settings: Mapping[str, object]) -> Iterator[Producer]:
    """A producer with these settings: the idle one, or a new one. The caller flushes it.

    After an error it is closed, as it may hold records that no one waits for.
    """
    key = repr(sorted(settings.items()))
    producer = _take(key) or Producer(settings)
    healthy = False
    try:
        yield producer
        healthy = True
    finally:
        if healthy:
            _put_back(key, producer)
        else:
            producer.close(timeout=1.0)


def _take(key: str) -> Producer | None:
    with _lock:
        if _idle and _idle[0][:2] == (os.getpid(), key):
            return _idle.pop()[2]
    return None


def _put_back(key: str, producer: Producer) -> None:
    with _lock:
        before = list(_idle)
        _idle[:] = [(os.getpid(), key, producer)]
    for process, _, surplus in before:
        if process == os.getpid():  # a forked worker cannot use its parent's
            surplus.close(timeout=1.0)
