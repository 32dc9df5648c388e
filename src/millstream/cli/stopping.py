"""Ctrl-C and SIGTERM as a wish to stop, for a command that is to finish what it has begun.

The first signal ends waiting for more to do, at once, and interrupts nothing else. The second one ends all.
Or, for a moment that must not be interrupted at all: ``signals_held``.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from millstream.cli.outcome import Terminated

T = TypeVar("T")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def _handlers() -> dict[signal.Signals, Any]:
    """Those of the signals that are not ignored, as they are in the background."""
    found = {each: signal.getsignal(each) for each in _SIGNALS}
    return {each: handler for each, handler in found.items() if handler not in (signal.SIG_IGN, None)}


@contextmanager
def signals_held() -> Iterator[None]:
    """Hear signals when the block ends, and not before. For imports while other threads import: what a signal
    raises in the middle may leave a lock of Python's taken, and everybody waiting for it for ever.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = _handlers()
    for each in before:
        signal.signal(each, hear)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
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
        before = _handlers()

        def restore() -> None:
            for each, handler in before.items():
                signal.signal(each, handler)

        def stop(number: int, frame: FrameType | None) -> None:
            self._signal = number
            restore()
            if self._is_waiting:
                raise _WaitingEndedError

        for each in before:
            signal.signal(each, stop)
        try:
            yield
        finally:
            restore()

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
