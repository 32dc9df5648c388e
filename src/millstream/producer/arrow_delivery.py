"""The outcome of one ``send_arrow``: a future for all of its rows, with their numbers by partition."""

from __future__ import annotations

import threading
from concurrent.futures import Future


class ArrowFuture(Future[int]):
    """The number of rows of one ``send_arrow``, once all are delivered; its error is the first of any row.

    It cannot be cancelled.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[int, int] = {}
        """Once done: the number of rows that were delivered, by partition."""
        self.failed: dict[int, tuple[int, BaseException]] = {}
        """Once done: the number of rows that were not delivered, and the first error, by partition."""


class ArrowDelivery:
    """Gathers the outcomes of the rows of one ``send_arrow``. Any thread may call."""

    def __init__(self, count: int) -> None:
        self.future = ArrowFuture()
        self.future.set_running_or_notify_cancel()  # records that were sent cannot be cancelled
        self._count = self._left = count
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        if not count:
            self.future.set_result(0)

    def settle(self, partition: int, count: int, error: BaseException | None) -> None:
        """``count`` more records have their outcome. After the last, the future gets the first error."""
        written, failed = self.future.written, self.future.failed
        with self._lock:
            self._left -= count
            if error is None:
                written[partition] = written.get(partition, 0) + count
            else:
                before, first = failed.get(partition, (0, error))
                failed[partition] = (before + count, first)
                self._error = self._error or error
            if self._left:
                return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._count)
