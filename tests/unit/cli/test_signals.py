"""Signals that wait for the end of a block."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from millstream.cli.signals import signals_held
from millstream.terminal.outcome import Terminated


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """As a command has them, whatever the process had that started this one."""

    def end(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_is_heard_when_the_block_ends(number: signal.Signals, kind: type[BaseException]) -> None:
    came_through = False

    def work() -> None:
        nonlocal came_through
        with signals_held():
            signal.raise_signal(number)
            came_through = True

    with pytest.raises(kind):
        work()
    assert came_through


def test_without_one_nothing_happens_and_the_handlers_are_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with signals_held():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals_held():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
