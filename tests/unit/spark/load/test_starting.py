"""What is begun in the background is waited for when it is needed, and not when the load shall end."""

from __future__ import annotations

import signal
import threading

import pytest

from millstream.spark.load.engine.background import BackgroundValue
from millstream.spark.load.engine.stopping import StoppedError, StopRequest
from tests.waiting import SECONDS


def test_a_value_is_made_in_the_background() -> None:
    gate = threading.Event()
    later = BackgroundValue(lambda: gate.wait(30) and threading.current_thread().name, "x")
    gate.set()
    assert later.get(StopRequest()) == later.get() == "millstream-load-x"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own")])
def test_what_its_making_raises_is_raised_where_it_is_needed(error: Exception) -> None:
    def make() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        BackgroundValue(make, "x").get(StopRequest())
    assert raised.value is error


def test_nobody_waits_for_it_when_the_load_shall_end() -> None:
    gate = threading.Event()
    stop = StopRequest()
    later = BackgroundValue(gate.wait, "x")
    stop.request()
    with pytest.raises(StoppedError):
        later.get(stop)
    gate.set()


def test_a_request_breaks_off_once_and_elsewhere() -> None:
    stop = StopRequest()
    seen: list[str] = []
    done = threading.Event()

    def abort_cycle() -> None:
        seen.append(threading.current_thread().name)
        done.set()

    stop.on_request(abort_cycle)
    stop.request()
    stop.request()
    assert done.wait(30)
    assert seen == ["millstream-load-stop"] and stop.is_requested and stop.signal is None


def test_the_first_signal_asks_and_the_second_insists() -> None:
    stop = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with stop.by_signals():
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(SECONDS) and stop.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_the_middle_of_a_wait_does_not_wait_for_it() -> None:
    """The handler runs on the thread that it interrupts, which may hold the lock of what it waits for."""
    stop = StopRequest()
    handled = threading.Event()

    def interrupted() -> None:
        with stop._requested._cond:  # type: ignore[attr-defined]
            stop._handle(signal.SIGTERM, None)
            handled.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert handled.wait(SECONDS) and stop.wait(SECONDS)
