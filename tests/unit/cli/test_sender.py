"""What ``millstream produce`` tells of its records, above all when it was interrupted."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from millstream.cli.produce.inputs import Draft
from millstream.cli.produce.sender import InputSender
from millstream.cli.signals import Stopper
from millstream.errors import ClosedError, MessageTooLargeError
from millstream.terminal.outcome import CommandError, Terminated

Printed = pytest.CaptureFixture[str]


class Promises:
    """A producer whose records have no outcome until somebody says so."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def send(self, *_: Any, **__: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


def sending(lines: range, written: tuple[int, ...] = ()) -> tuple[InputSender, Promises]:
    """These lines were sent, and some of them written, in this order."""
    producer, found = Promises(), InputSender("t")
    found.send_all(producer, (Draft(b"x", line=line) for line in lines))  # type: ignore[arg-type]
    for line in written:
        producer.futures[line - lines.start].set_result(None)
    return found, producer


def test_all_is_written(capsys: Printed) -> None:
    found, _ = sending(range(1, 4), (3, 1, 2))
    assert (found.next_line, found.in_flight) == (4, 0)
    found.report(False, created=False)
    assert capsys.readouterr() == ("3 records written to t\n", "")


def test_cut_short(capsys: Printed) -> None:
    found, _ = sending(range(5, 8), (5, 6, 7))
    found.report(False, created=False, is_cut_short=True)
    said = "interrupted: 3 records written to t; to continue, add --from-line 8\n"
    assert capsys.readouterr() == ("", said)
    found.report(False, created=False, is_cut_short=True, is_typed=True)
    assert capsys.readouterr() == ("", "interrupted: 3 records written to t\n")


def test_given_up(capsys: Printed) -> None:
    """Partitions are written independently: a line in the middle may be the first that is missing."""
    found, producer = sending(range(1, 6), (1, 2, 4))
    assert (found.next_line, found.in_flight) == (3, 2)
    for line in (3, 5):
        producer.futures[line - 1].set_exception(ClosedError())
    found.report(False, created=False, is_cut_short=True)
    said = "3 records written to t, perhaps 2 more; to continue, add --from-line 3 ("
    assert said in capsys.readouterr().err
    found.report(True, created=True, is_cut_short=True)
    told = json.loads(capsys.readouterr().out)
    assert told.items() >= {"records": 3, "interrupted": True, "unknown": 2, "next_line": 3}.items()
    with pytest.raises(CommandError):
        found.report(False, created=False)


def test_a_refused_record_is_told_of_also_when_it_was_cut_short() -> None:
    found, producer = sending(range(1, 3), (1,))
    producer.futures[1].set_exception(MessageTooLargeError("a record of 2 bytes"))
    with pytest.raises(CommandError, match=r"^line 2: .*; 1 other record was written"):
        found.report(False, created=False, is_cut_short=True)


# ---- signals ----


def numbers(stop_at: int, number: int) -> Iterator[int]:
    """Counts; the signal comes while somebody waits for one of the numbers."""
    for each in range(10):
        if each == stop_at:
            signal.raise_signal(number)
        yield each


@pytest.mark.parametrize(
    ("number", "ending"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_ends_waiting(number: int, ending: type[BaseException]) -> None:
    stopper, before = Stopper(), signal.getsignal(number)
    signal.signal(number, signal.default_int_handler)  # in the background it is ignored
    try:
        with stopper.listening():
            assert list(stopper.until_stopped(numbers(3, number))) == [0, 1, 2]
            assert stopper.is_cut_short
        with pytest.raises(ending):
            stopper.end()
    finally:
        signal.signal(number, before)


def test_a_signal_interrupts_nothing_but_waiting_and_the_second_all() -> None:
    stopper, before = Stopper(), signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = []
    try:
        with stopper.listening():
            for each in stopper.until_stopped(range(10)):
                if each == 2:
                    signal.raise_signal(signal.SIGINT)
                seen.append(each)
            assert seen == [0, 1, 2], "what was begun is finished"
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_after_the_end_there_is_nothing_to_cut_short() -> None:
    stopper, before = Stopper(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stopper.listening():
            assert list(stopper.until_stopped(range(3))) == [0, 1, 2]
            signal.raise_signal(signal.SIGINT)
            assert stopper.is_stopped
            assert not stopper.is_cut_short
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    stopper, before = Stopper(), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopper.listening():
            assert list(stopper.until_stopped(numbers(1, signal.SIGINT))) == list(range(10))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
