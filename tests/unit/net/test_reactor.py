"""The event loop: timers in order, calls from threads, and errors that stay where they happened."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial

import pytest

from millstream.net.reactor import Reactor
from tests.waiting import SECONDS


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


def test_timers_run_in_the_order_of_their_deadlines(reactor: Reactor) -> None:
    ran: list[str] = []
    now_ms = reactor.now_ms()
    reactor.call_at(now_ms + 20, lambda: ran.append("second"))
    reactor.call_at(now_ms + 30, reactor.stop)
    reactor.call_at(now_ms + 10, lambda: ran.append("first"))
    cancelled = reactor.call_at(now_ms + 5, lambda: ran.append("never"))
    cancelled.cancel()
    reactor.run()
    reactor.close()
    assert ran == ["first", "second"]
    assert reactor.now_ms() >= now_ms + 30


def test_calls_from_threads_are_all_run_in_order(reactor: Reactor) -> None:
    ran: list[int] = []

    def call_many() -> None:
        for number in range(10_000):
            reactor.call_threadsafe(partial(ran.append, number))
        reactor.stop()

    thread = threading.Thread(target=call_many)
    thread.start()
    reactor.run()
    thread.join()
    reactor.close()
    assert ran == list(range(10_000))


def test_deferred_calls_run_at_the_end_of_the_turn(reactor: Reactor) -> None:
    ran: list[str] = []

    def first() -> None:
        reactor.defer(lambda: ran.append("deferred"))
        ran.append("called")

    reactor.call_threadsafe(first)
    reactor.call_threadsafe(lambda: ran.append("called too"))
    reactor.stop()
    reactor.run()
    reactor.close()
    assert ran == ["called", "called too", "deferred"]


def test_an_exception_is_logged_and_the_others_go_on(
    reactor: Reactor, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def broken() -> None:
        raise ValueError("broken on purpose")

    reactor.call_threadsafe(broken)
    reactor.call_threadsafe(lambda: ran.append("after"))
    reactor.stop()
    reactor.run()
    reactor.close()
    assert ran == ["after"]
    assert "broken on purpose" in caplog.text


def test_a_signal_handler_may_call_while_the_loop_is_being_called(reactor: Reactor) -> None:
    """The handler runs on the loop's own thread, in the middle of whatever it does."""
    ran: list[int] = []
    thread = threading.Thread(target=reactor.run)

    def interrupt(*_: object) -> None:
        reactor.call_threadsafe(lambda: ran.append(1))

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        thread.start()
        deadline = time.monotonic() + SECONDS
        while len(ran) < 200 and time.monotonic() < deadline:
            reactor.call_threadsafe(lambda: None)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        reactor.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()
    reactor.close()
    assert len(ran) >= 200
