"""Ctrl-C and SIGTERM as a request to stop, for commands that finish what they have begun.

The first signal ends the wait for more input and interrupts nothing else. The second ends the command.
``signals_end`` ends the process while code runs that no exception may interrupt.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn, TypeVar

from millstream.terminal.outcome import Terminated

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _handled_by(handler: Callable[[int, Callable[[], None]], None]) -> Iterator[None]:
    """Call ``handler`` for signals until the block ends, except those that the process ignores.

    ``handler`` gets the signal's number and a function that restores the earlier handlers.
    """
    found = {each: signal.getsignal(each) for each in _SIGNALS}
    before = {each: there for each, there in found.items() if there not in (signal.SIG_IGN, None)}

    def restore() -> None:
        for each, there in before.items():
            signal.signal(each, there)

    def hear(number: int, frame: FrameType | None) -> None:
        handler(number, restore)

    for each in before:
        signal.signal(each, hear)
    try:
        yield
    finally:
        restore()


@contextmanager
def signals_end(clean_up: Callable[[], None]) -> Iterator[None]:
    """End the process at the first signal until the block ends, after ``clean_up``: without an exception.

    For imports while other threads import: an exception raised by a signal handler in the middle may leave an
    import lock held, which blocks those threads forever.
    """

    def end(number: int, restore: Callable[[], None]) -> None:
        clean_up()
        os._exit(128 + number)

    with _handled_by(end):
        yield


class _WaitingEndedError(BaseException):
    """Raised by the signal handler to end a wait for more input."""


class Stopper:
    """Remembers the first signal. For the main thread, which runs signal handlers."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._is_waiting = False
        self._has_ended = False

    @property
    def is_stopped(self) -> bool:
        return self._signal is not None

    @property
    def is_cut_short(self) -> bool:
        """Whether it was stopped before the input ended."""
        return self.is_stopped and not self._has_ended

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals until the block ends. Ignored signals, as in the background, stay ignored."""

        def stop(number: int, restore: Callable[[], None]) -> None:
            self._signal = number
            restore()
            if self._is_waiting:
                raise _WaitingEndedError

        with _handled_by(stop):
            yield

    def until_stopped(self, more: Iterable[T]) -> Iterator[T]:
        """The items of ``more`` until the first signal. An item being read at that moment is dropped."""
        rest = iter(more)
        try:
            while not self.is_stopped:
                self._is_waiting = True
                try:
                    each = next(rest)
                except StopIteration:
                    self._has_ended = True
                    return
                finally:
                    self._is_waiting = False
                yield each
        except _WaitingEndedError:
            self._is_waiting = False

    def end(self) -> NoReturn:
        """End the command as the signal would have."""
        raise KeyboardInterrupt if self._signal == signal.SIGINT else Terminated
