"""Ctrl-C and SIGTERM as a wish to stop, for a command that is to finish what it has begun.

The first signal ends waiting for more to do, at once, and interrupts nothing else. The second one ends all.
Or, for a moment that must not be interrupted at all: ``signals_held``.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn, TypeVar

from millstream.terminal.outcome import Terminated

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _heard_by(handler: Callable[[int, Callable[[], None]], None]) -> Iterator[None]:
    """Until the block ends ``handler`` hears signals, but for those that the process ignores, as in the
    background. It is told the signal's number, and may end the block's listening before its time.
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
def signals_held() -> Iterator[None]:
    """Hear signals when the block ends, and not before. For imports while other threads import: what a signal
    raises in the middle may leave a lock of Python's taken, and everybody waiting for it for ever.
    """
    heard: list[int] = []
    with _heard_by(lambda number, restore: heard.append(number)):
        yield
    if heard:
        signal.raise_signal(heard[0])


class _WaitingEndedError(BaseException):
    """Raised by the signal inside whatever waits for more."""


class Stopper:
    """Remembers the first signal. Of the main thread, which alone hears them."""

    def __init__(self) -> None:
        self._signal: int | None = None
        self._is_waiting = False
        self._has_ended = False

    @property
    def is_stopped(self) -> bool:
        return self._signal is not None

    @property
    def is_cut_short(self) -> bool:
        """Whether it was stopped before there was nothing more to do."""
        return self.is_stopped and not self._has_ended

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear signals until the block ends; one that the process ignores, as in the background, it still
        ignores.
        """

        def stop(number: int, restore: Callable[[], None]) -> None:
            self._signal = number
            restore()
            if self._is_waiting:
                raise _WaitingEndedError

        with _heard_by(stop):
            yield

    def until_stopped(self, more: Iterable[T]) -> Iterator[T]:
        """All there is, up to the first signal. What was about to be read when it came is not given out."""
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
