"""An exchange of requests and answers that is written as a generator, and run without blocking.

::

    def steps() -> Steps[int]:
        frame = yield Send(request, version)
        secret = yield Compute(read_the_secret)
        return lifetime_ms

``Send`` is answered with the frame of the response, ``Compute`` with what the function returns or raises: it
runs on a thread of its own, because reading a file, deriving a key or asking for a token takes time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millstream.errors import AuthenticationError, MillstreamError
from millstream.net.reactor import Reactor
from millstream.wire.schema import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request in a version, and wait for its answer."""

    request: Request
    version: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function on another thread, and wait for what it returns."""

    work: Callable[[], Any]


Steps = Generator[Send | Compute, Any, T]


class Exchange(Generic[T]):
    """Runs the steps on the I/O thread; calls ``on_done`` with what they return, or ``on_failed``, once."""

    def __init__(
        self,
        reactor: Reactor,
        steps: Steps[T],
        write: Callable[[Request, int], int],
        on_done: Callable[[T], None],
        on_failed: Callable[[MillstreamError], None],
    ) -> None:
        """``write`` sends a request, and returns its correlation id."""
        self._reactor = reactor
        self._steps = steps
        self._write = write
        self._on_done = on_done
        self._on_failed = on_failed
        self._expected: int | None = None
        self._open = True

    def start(self) -> None:
        self._advance(lambda: next(self._steps))

    def expects(self, frame: memoryview) -> bool:
        """Whether a frame is the answer that the steps wait for."""
        return self._expected == int.from_bytes(frame[:4], "big", signed=True)

    def receive(self, frame: memoryview) -> None:
        """Take the answer to the last request."""
        self._expected = None
        self._advance(lambda: self._steps.send(frame))

    def cancel(self) -> None:
        """Take no further step; neither callback follows."""
        self._open = False

    def _advance(self, step: Callable[[], Send | Compute]) -> None:
        try:
            wanted = step()
        except StopIteration as end:
            self._open = False
            self._on_done(end.value)
        except MillstreamError as error:
            self._open = False
            self._on_failed(error)
        else:
            if isinstance(wanted, Send):
                self._expected = self._write(wanted.request, wanted.version)
            else:
                threading.Thread(target=self._compute, args=(wanted.work,), daemon=True).start()

    def _compute(self, work: Callable[[], Any]) -> None:
        result, failure = None, None
        try:
            result = work()
        except MillstreamError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - a user's callable may raise anything: it fails the login
            failure = AuthenticationError(f"the login failed here: {error!r}")
        self._reactor.call_threadsafe(lambda: self._computed(result, failure))

    def _computed(self, result: Any, failure: MillstreamError | None) -> None:
        if not self._open:
            return
        error = failure
        if error is not None:
            self._advance(lambda: self._steps.throw(error))
        else:
            self._advance(lambda: self._steps.send(result))
