"""A value that a background thread computes: Spark's session, the sink's preparation, answers of brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Final, Generic, TypeVar

from millstream.spark.load.engine.stopping import StoppedError, StopRequest

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.1


class BackgroundValue(Generic[T]):
    """A value that a daemon thread computes. The thread does not keep the program from ending."""

    def __init__(self, make: Callable[[], T], name: str) -> None:
        self._future: Future[T] = Future()
        self._make = make
        threading.Thread(target=self._run, name=f"millstream-load-{name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._future.set_result(self._make())
        except BaseException as error:  # noqa: BLE001 - raised where the value is needed
            self._future.set_exception(error)

    def get(self, stop: StopRequest | None = None) -> T:
        """Wait for the value; raises what computing it raised, or StoppedError once ``stop`` is requested."""
        while stop is not None and not self._future.done():
            if stop.is_requested:
                raise StoppedError
            wait([self._future], _LOOK_SECONDS)
        return self._future.result()
