"""A client's cores, and its end: closed, forgotten, forked, or left open."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

import pytest

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.config import AdminConfig
from millstream.errors import ClosedError, MisuseError
from millstream.wire.messages.group_admin import ListGroupsRequest
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.sending import client_of, send
from tests.waiting import SECONDS, until


class CountingCore:
    """Wants to be woken at a time, and counts."""

    def __init__(self) -> None:
        self.polls = 0
        self.wake_ms: int | None = None
        self.fails = False

    def poll(self, now_ms: int) -> None:
        self.polls += 1
        if self.fails:
            raise RuntimeError("a bug")
        if self.wake_ms is not None and now_ms >= self.wake_ms:
            self.wake_ms = None

    def next_wake_ms(self, now_ms: int) -> int | None:
        return self.wake_ms


def test_cores_are_polled_on_events_on_wakes_and_in_time(broker: FakeBroker) -> None:
    core = CountingCore()
    with client_of(broker) as client:
        client.submit(lambda: client.attach(core))
        until(lambda: core.polls >= 1, "it was polled when attached")
        before = core.polls
        send(client).result(SECONDS)
        until(lambda: core.polls > before, "it was polled after an answer")
        core.wake_ms = client.now_ms() + 30
        client.wake()
        until(lambda: core.wake_ms is None, "it was polled in time")


def test_a_core_that_fails_does_not_stop_the_others(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = CountingCore(), CountingCore()
    bad.fails = True
    with client_of(broker) as client:
        client.submit(lambda: client.attach(bad))
        client.submit(lambda: client.attach(good))
        until(lambda: good.polls >= 1, "the good one is polled")
        send(client).result(SECONDS)
    assert "a bug" in caplog.text


def test_closing_fails_what_waits_and_refuses_the_rest(broker: FakeBroker) -> None:
    broker.handlers[ListGroupsRequest] = lambda request: None
    with client_of(broker) as client:
        waiting = send(client)
        until(lambda: client.metrics.requests_sent == 1, "the request was sent")
        assert client.close(SECONDS)
        with pytest.raises(ClosedError):
            waiting.result(SECONDS)
        with pytest.raises(ClosedError):
            BlockingCalls(client).refresh_metadata((), Deadline(1))
        with pytest.raises(ClosedError):
            client.submit(lambda: None)
        assert client.close(SECONDS)


def test_a_last_word_gets_out_before_the_connection_closes(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        send(client).result(SECONDS)
        broker.handlers[ListGroupsRequest] = lambda request: None
        last = send(client)
        assert client.close(SECONDS)
        with pytest.raises(ClosedError):
            last.result(SECONDS)
    until(lambda: len(broker.received(ListGroupsRequest)) == 2, "the broker has read the last request")


def test_waiting_in_a_callback_is_refused(broker: FakeBroker) -> None:
    outcome: Future[Any] = Future()
    with client_of(broker) as client:

        def try_to_wait() -> None:
            try:
                BlockingCalls(client).refresh_metadata((), Deadline(1))
            except MisuseError as error:
                outcome.set_result(error)

        client.submit(try_to_wait)
        assert "cannot be made in a callback" in str(outcome.result(SECONDS))


def test_a_forgotten_client_ends_by_itself(broker: FakeBroker) -> None:
    class Owner:
        pass

    owner = Owner()
    client = Client(AdminConfig.from_settings({"bootstrap_servers": broker.address}))
    client.close_with(owner)
    send(client).result(SECONDS)
    del owner
    until(lambda: not client.io._thread.is_alive(), "the thread has ended")


def test_the_interpreter_ends_though_a_client_is_open(broker: FakeBroker) -> None:
    program = f"""
from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.config import AdminConfig
client = Client(AdminConfig.from_settings({{"bootstrap_servers": "{broker.address}"}}))
BlockingCalls(client).refresh_metadata((), Deadline({SECONDS}))
print("done")
"""
    run = subprocess.run(
        [sys.executable, "-c", program], timeout=SECONDS, capture_output=True, text=True, check=True
    )
    assert (run.stdout, run.stderr) == ("done\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(broker: FakeBroker) -> None:
    with client_of(broker) as client:
        send(client).result(SECONDS)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                BlockingCalls(client).refresh_metadata((), Deadline(1))
            except MisuseError as error:
                code = 0 if "create a new one in each child process" in str(error) else 2
            client.close()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        send(client).result(SECONDS)  # the parent's connection is unharmed
    assert broker.connections == 1
