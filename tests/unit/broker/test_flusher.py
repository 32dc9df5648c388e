"""Shared syncs: whoever waited is told exactly what happened to its own data."""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pytest

from millstream.broker.flusher import Flusher, SyncableLog
from millstream.broker.metrics import BrokerMetrics
from tests.waiting import until

DEADLINE_SECONDS = 60


class ScriptedLog:
    """A log whose syncs wait for the test, and end as the test says."""

    def __init__(self) -> None:
        self.appended = 0
        self.durable = 0
        self.verdicts: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        self.started: queue.SimpleQueue[int] = queue.SimpleQueue()

    def take_unsynced(self) -> ScriptedTicket:
        return ScriptedTicket(self, self.appended)

    def synced(self, ticket: Any) -> None:
        self.durable = ticket.up_to

    def sync_failed(self, ticket: Any, error: Exception) -> None:
        self.appended = self.durable


class ScriptedTicket:
    def __init__(self, log: ScriptedLog, up_to: int) -> None:
        self.log = log
        self.up_to = up_to

    def sync(self) -> None:
        self.log.started.put(self.up_to)
        verdict = self.log.verdicts.get(timeout=DEADLINE_SECONDS)
        if verdict is not None:
            raise verdict


Failures = dict[SyncableLog, Exception]
T = TypeVar("T")


def tell(told: list[tuple[T, Failures]], who: T, failures: Failures) -> None:
    told.append((who, failures))


class Loop:
    """The loop's thread is the test: it runs the calls that came, when it chooses."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.flusher = Flusher(self.calls.put, BrokerMetrics())

    def turn(self) -> None:
        self.calls.get(timeout=DEADLINE_SECONDS)()


@pytest.fixture
def loop() -> Iterator[Loop]:
    before = set(threading.enumerate())  # a broker that other tests share may run in this process
    made = Loop()
    yield made
    made.flusher.close()
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if name.startswith("millstream-sync")]


def test_requests_that_come_during_a_sync_share_the_next_one(loop: Loop) -> None:
    log = ScriptedLog()
    told: list[tuple[int, Failures]] = []
    for number in range(1, 6):
        log.appended = number
        loop.flusher.when_durable([log], partial(tell, told, number))
    assert log.started.get(timeout=DEADLINE_SECONDS) == 1
    log.verdicts.put(None)
    loop.turn()
    assert told == [(1, {})], "only what the first sync covered is durable"
    assert log.started.get(timeout=DEADLINE_SECONDS) == 5
    log.verdicts.put(None)
    loop.turn()
    assert told == [(number, {}) for number in range(1, 6)]


def test_a_failed_sync_fails_all_that_was_cut_with_it(loop: Loop) -> None:
    log = ScriptedLog()
    told: list[tuple[str, Failures]] = []
    log.appended = 1
    loop.flusher.when_durable([log], partial(tell, told, "covered"))
    log.appended = 2
    loop.flusher.when_durable([log], partial(tell, told, "waiting"))
    error = OSError(5, "the disk is gone")
    log.verdicts.put(error)
    loop.turn()
    assert told == [("covered", {log: error}), ("waiting", {log: error})]
    log.appended = 1
    loop.flusher.when_durable([log], partial(tell, told, "later"))
    log.verdicts.put(None)
    loop.turn()
    assert told[-1] == ("later", {})


def test_a_request_over_several_logs_waits_for_all_and_names_the_failed(loop: Loop) -> None:
    good, bad = ScriptedLog(), ScriptedLog()
    told: list[Failures] = []
    loop.flusher.when_durable([good, bad], told.append)
    good.verdicts.put(None)
    loop.turn()
    assert told == []
    error = OSError(28, "full")
    bad.verdicts.put(error)
    loop.turn()
    assert told == [{bad: error}]


def test_without_logs_there_is_nothing_to_wait_for(loop: Loop) -> None:
    told: list[object] = []
    loop.flusher.when_durable([], told.append)
    assert told == [{}]


class ManyLogs:
    """More logs than are synced one by one, and a file system that answers as the test says."""

    def __init__(self, together: bool) -> None:
        self.logs = [ScriptedLog() for _ in range(500)]
        self.together: list[list[Any]] = []
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.told: list[tuple[str, Failures]] = []

        def sync_together(tickets: Sequence[Any]) -> bool:
            self.together.append(list(tickets))
            return together

        self.flusher = Flusher(self.calls.put, BrokerMetrics(), sync_together)

    def append(self, who: str) -> None:
        for log in self.logs:
            log.appended += 1
        self.flusher.when_durable(self.logs, partial(tell, self.told, who))

    def turn(self) -> None:
        self.calls.get(timeout=DEADLINE_SECONDS)()


def test_many_logs_share_one_sync() -> None:
    many = ManyLogs(together=True)
    many.append("first")
    many.append("second")
    many.turn()
    assert many.told == [("first", {})] and {log.durable for log in many.logs} == {1}
    many.turn()
    assert many.told == [("first", {}), ("second", {})] and {log.durable for log in many.logs} == {2}
    assert [len(tickets) for tickets in many.together] == [500, 500]
    many.flusher.close()


def test_where_they_cannot_share_each_is_synced() -> None:
    many = ManyLogs(together=False)
    broken = OSError("the disk is on fire")
    for number, log in enumerate(many.logs):
        log.verdicts.put(broken if number == 7 else None)
    many.append("first")
    while not many.told:
        many.turn()
    assert many.told == [("first", {many.logs[7]: broken})]
    assert [log.durable for log in many.logs] == [int(number != 7) for number in range(500)]
    many.flusher.close()


def test_where_they_cannot_share_all_threads_work() -> None:
    many = ManyLogs(together=False)
    many.append("first")

    def begun() -> list[ScriptedLog]:
        return [log for log in many.logs if not log.started.empty()]

    until(lambda: len(begun()) == 4, "every thread syncs a log")
    for log in many.logs:
        log.verdicts.put(None)
    while not many.told:
        many.turn()
    assert many.told == [("first", {})] and {log.durable for log in many.logs} == {1}
    many.flusher.close()


def test_a_close_finishes_what_is_shared_out() -> None:
    many = ManyLogs(together=False)
    for log in many.logs:
        log.verdicts.put(None)
    many.append("first")
    many.flusher.close()
    assert all(not log.started.empty() for log in many.logs)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_sync_without_a_descriptor_is_not_a_failed_one(loop: Loop, number: int) -> None:
    log = ScriptedLog()
    told: list[Failures] = []
    log.appended = 1
    loop.flusher.when_durable([log], told.append)
    log.verdicts.put(OSError(number, "too many open files"))
    log.verdicts.put(None)
    loop.turn()
    assert told == [{}] and log.durable == 1


def test_few_logs_are_synced_one_by_one() -> None:
    many = ManyLogs(together=True)
    few = many.logs[:3]
    for log in few:
        log.verdicts.put(None)
    many.flusher.when_durable(few, partial(tell, many.told, "few"))
    for _ in few:
        many.turn()
    assert many.told == [("few", {})] and not many.together
    many.flusher.close()
