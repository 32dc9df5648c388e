"""Ends what a start of Spark has begun if the program ends meanwhile: processes and temporary directories.

PySpark starts Java in a thread of ours and removes the directory when Java is up. If the program ends before,
neither would happen: Java would notice only when it is up, and the directory would stay.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final


class _JavaStart:
    """What one start of Java has made so far."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: str | None = None
        self._has_ended = False
        self._lock = threading.RLock()  # the program may end in the middle of a start, on another thread

    def open_process(self, *words: Any, **options: Any) -> subprocess.Popen[bytes]:
        """Stands for ``Popen`` in PySpark."""
        with self._starting():
            self._process = subprocess.Popen(*words, **options)
            return self._process

    def make_directory(self) -> str:
        """Stands for ``tempfile.mkdtemp`` in PySpark."""
        with self._starting():
            self._directory = tempfile.mkdtemp()
            return self._directory

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            if self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)  # PySpark's thread may remove it, too

    @contextmanager
    def _starting(self) -> Iterator[None]:
        with self._lock:
            if self._has_ended:
                raise RuntimeError("Java is not started: the program ends")
            yield


_under_way: Final[set[Callable[[], None]]] = set()


@contextmanager
def ended_with_program(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` if the program ends inside the block."""
    _under_way.add(end)
    try:
        yield
    finally:
        _under_way.discard(end)


@contextmanager
def java_start() -> Iterator[None]:
    """Around PySpark's start of Java. If the program ends inside the block, Java ends with it."""
    gateway: Any = import_module("pyspark.java_gateway")
    start, before = _JavaStart(), (gateway.Popen, gateway.tempfile)
    gateway.Popen = start.open_process
    gateway.tempfile = SimpleNamespace(mkdtemp=start.make_directory, mkstemp=tempfile.mkstemp)
    try:
        with ended_with_program(start.end):
            yield
    finally:
        gateway.Popen, gateway.tempfile = before


@atexit.register
def end_starts() -> None:
    """End what is under way; for programs that end without ``atexit``."""
    for end in list(_under_way):
        end()
