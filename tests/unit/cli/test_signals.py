"""Signals that end the process, without an exception."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from millstream.cli.signals import signals_end
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_after_a_clean_up(number: signal.Signals) -> None:
    """No exception is raised: no handler of the program sees it, and an import is not torn apart."""
    program = f"""
import signal
from millstream.cli.signals import signals_end
signal.signal(signal.SIGINT, signal.default_int_handler)
with signals_end(lambda: print("cleaned up", flush=True)):
    try:
        signal.raise_signal({int(number)})
    except BaseException:
        print("raised", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("cleaned up\n", "", 128 + number)


def test_without_one_nothing_happens_and_the_handlers_are_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with signals_end(lambda: None):
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with signals_end(lambda: None):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
