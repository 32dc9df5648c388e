"""CoreGuard: uses a consumer's cores under its lock, and keeps the exception that has ended their work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from millstream.errors import InternalError

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("millstream.consumer")


class CoreGuard:
    """A core that has raised is in no known state: none is used after that, and the user is told."""

    def __init__(self, lock: threading.Condition, group_id: str | None) -> None:
        self._lock = lock
        self._group_id = group_id
        self._failure: InternalError | None = None

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Use the cores, on the I/O thread. None after a failure."""
        with self._lock:
            if self.has_failed:
                return None
            try:
                return work(*args, **kwargs)
            except Exception as error:
                log.exception("group %s: the consumer failed", self._group_id)
                self._failure = InternalError(f"{InternalError.meaning} ({error!r})")
                self._failure.__cause__ = error
                self._lock.notify_all()
                return None

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def check(self) -> None:
        """Raise InternalError if a core has failed."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
