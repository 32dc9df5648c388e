"""What is begun in the background is waited for when it is needed, and not when the load shall end."""

from __future__ import annotations

import signal
import threading

import pytest

from millstream.spark.load.engine.background import Later
from millstream.spark.load.engine.stopping import Stop, StoppedError
from tests.waiting import SECONDS


def test_a_value_is_made_in_the_background() -> None:
    gate = threading.Event()
    later = Later(lambda: gate.wait(30) and threading.current_thread().name, "x")
    gate.set()
    assert later.get(Stop()) == later.get() == "millstream-load-x"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own")])
def test_what_its_making_raises_is_raised_where_it_is_needed(error: Exception) -> None:
    def make() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        Later(make, "x").get(Stop())
    assert raised.value is error


def test_nobody_waits_for_it_when_the_load_shall_end() -> None:
    gate = threading.Event()
    stop = Stop()
    later = Later(gate.wait, "x")
    stop.request()
    with pytest.raises(StoppedError):
        later.get(stop)
    gate.set()


def test_a_request_breaks_off_once_and_elsewhere() -> None:
    stop = Stop()
    seen: list[str] = []
    done = threading.Event()

    def break_off() -> None:
        seen.append(threading.current_thread().name)
        done.set()

    stop.on_request(break_off)
    stop.request()
    stop.request()
    assert done.wait(30)
    assert seen == ["millstream-load-stop"] and stop.is_wanted and stop.signal is None


def test_the_first_signal_asks_and_the_second_insists() -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGTERM)
    with stop.by_signals():
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(SECONDS) and stop.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_the_middle_of_a_wait_does_not_wait_for_it() -> None:
    """The handler runs on the thread that it interrupts, which may hold the lock of what it waits for."""
    stop = Stop()
    handled = threading.Event()

    def interrupted() -> None:
        with stop._wanted._cond:  # type: ignore[attr-defined]
            stop._handle(signal.SIGTERM, None)
            handled.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert handled.wait(SECONDS) and stop.wait(SECONDS)
