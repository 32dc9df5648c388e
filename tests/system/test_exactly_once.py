"""Exactly once with offsets in a database: the two examples, killed and stalled at random, end exact.

Two members of a group store results and offsets in one transaction. They are killed with SIGKILL and started
again, or stopped for longer than their session lasts, so that another takes over while they still hold
records. Every record has a value of its own: at the end the database has each of them, once.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest

from examples import offsets_in_postgresql, offsets_in_sqlite
from millstream import Admin, Consumer, Producer, Records, TopicPartition
from tests.system.example_process import RunningExample
from tests.system.postgresql import postgresql
from tests.waiting import until

SEED = 20
KILLS = 8
STALLS = 2
PARTITIONS = 4
SESSION_TIMEOUT_MS = 1500
RECORDS_PER_SECOND = 2000

Query = Callable[[str], list[tuple[Any, ...]]]


class Feed:
    """Writes numbered records on a thread of its own, at an even pace, until it is told to stop."""

    def __init__(self, servers: str, topic: str) -> None:
        self.count = 0
        self._topic = topic
        self._producer = Producer(bootstrap_servers=servers, value_serializer="string")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            for _ in range(RECORDS_PER_SECOND // 100):
                self._producer.send(self._topic, str(self.count), partition=self.count % PARTITIONS)
                self.count += 1


class Workers:
    """Two members, and what happens to them."""

    def __init__(self, stack: ExitStack, example: str, *arguments: object) -> None:
        self._stack = stack
        self._order = (example, *arguments, "--session-timeout-ms", SESSION_TIMEOUT_MS)
        self._workers = [self._start(), self._start()]
        self._rng = random.Random(SEED)

    def _start(self) -> RunningExample:
        name, *arguments = self._order
        return self._stack.enter_context(RunningExample(str(name), *arguments))

    def disturb(self, total: Callable[[], int]) -> None:
        """Kill and stall, each time in the midst of work."""
        events = [self._kill] * KILLS + [self._stall] * STALLS
        self._rng.shuffle(events)
        for event in events:
            self._wait_for_work(total)
            time.sleep(self._rng.uniform(0.0, 0.3))  # anywhere in a batch, a transaction or a rebalance
            event(self._rng.randrange(2))

    def _wait_for_work(self, total: Callable[[], int]) -> None:
        before = total()
        until(lambda: total() > before, f"work goes on: {self._workers}")

    def _kill(self, index: int) -> None:
        assert self._workers[index].end(signal.SIGKILL) == -signal.SIGKILL, self._workers[index]
        self._workers[index] = self._start()

    def _stall(self, index: int) -> None:
        """Stop for so long that the group goes on without it; then let it go on as if nothing had been."""
        self._workers[index].send(signal.SIGSTOP)
        time.sleep(1.5 * SESSION_TIMEOUT_MS / 1000)
        self._workers[index].send(signal.SIGCONT)

    def check(self) -> None:
        """None of them has failed."""
        for worker in self._workers:
            assert worker.is_running, worker


@pytest.fixture
def topic(bootstrap_servers: str) -> Iterator[str]:
    name = f"exactly-once-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
        yield name
        admin.delete_topics([name])


def check(servers: str, topic: str, example: str, database: object, query: Query) -> None:
    """Run the example under fire, and compare the database with what was written."""

    def total() -> int:
        return int(query("SELECT coalesce(sum(customers), 0) FROM countries")[0][0])

    arguments = ("--bootstrap-servers", servers, "--topic", topic, "--group", topic, "--database", database)
    with ExitStack() as stack:
        workers = Workers(stack, example, *arguments)
        until(lambda: tables_exist(query), "the tables")
        with Feed(servers, topic) as feed:
            workers.disturb(total)
        ends = {number: len(range(number, feed.count, PARTITIONS)) for number in range(PARTITIONS)}
        progress = 'SELECT "partition", next_offset FROM progress'
        until(lambda: dict(pairs(query, progress)) == ends, "all records are processed")
        workers.check()
    assert dict(pairs(query, progress)) == ends
    stored = dict(pairs(query, "SELECT country, customers FROM countries"))
    wrong = {value: times for value, times in stored.items() if times != 1}
    assert not wrong, f"seed {SEED}: {len(wrong)} of {feed.count} records were applied more than once"
    missing = {str(number) for number in range(feed.count)} - stored.keys()
    assert not missing, f"seed {SEED}: {len(missing)} of {feed.count} records were never applied"
    assert len(stored) == feed.count


def pairs(query: Query, statement: str) -> list[tuple[Any, Any]]:
    return [(first, second) for first, second in query(statement)]


def tables_exist(query: Query) -> bool:
    try:
        query("SELECT 1 FROM countries, progress")
    except (sqlite3.OperationalError, psycopg.errors.UndefinedTable):
        return False
    return True


def test_sqlite(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    database = tmp_path / "countries.sqlite"
    with closing(sqlite3.connect(database, timeout=30.0)) as connection:
        check(
            bootstrap_servers,
            topic,
            "offsets_in_sqlite",
            database,
            lambda statement: connection.execute(statement).fetchall(),
        )


def test_postgresql(bootstrap_servers: str, topic: str) -> None:
    with postgresql() as uri, psycopg.connect(uri, autocommit=True) as connection:
        check(
            bootstrap_servers,
            topic,
            "offsets_in_postgresql",
            uri,
            lambda statement: connection.execute(statement.encode()).fetchall(),
        )


class Stored(Protocol):
    """What the two examples have in common."""

    def add(self, records: Records) -> int: ...

    def close(self) -> None: ...


def check_overlap(servers: str, topic: str, first: Stored, second: Stored) -> None:
    """Two members with the same records, of which one was stalled: what one has stored the other skips."""
    with Producer(bootstrap_servers=servers, value_serializer="string") as producer:
        for number in range(100):
            producer.send(topic, str(number), partition=0)
    where = TopicPartition(topic, 0)
    with (
        closing(first),
        closing(second),
        Consumer(
            bootstrap_servers=servers, value_deserializer="string", auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.assign([where])
        until(lambda: consumer.end_offsets([where]) == {where: 100}, "all are written")
        records = until(lambda: whole(consumer, where), "one poll has them all")
        begin, rest = part(records, 0, 60), part(records, 60, 100)
        assert [first.add(begin), second.add(records), first.add(rest)] == [60, 40, 0]
        assert [second.add(begin), first.add(records)] == [0, 0]


def part(records: Records, start: int, stop: int) -> Records:
    found = records[start:stop]
    assert isinstance(found, Records)
    return found


def whole(consumer: Consumer, where: TopicPartition) -> Records | None:
    consumer.seek(where, 0)
    records = consumer.poll(timeout=5.0)
    return records if len(records) == 100 else None


def test_overlap_in_sqlite(bootstrap_servers: str, topic: str, tmp_path: Path) -> None:
    database = str(tmp_path / "countries.sqlite")
    first, second = offsets_in_sqlite.Results(database), offsets_in_sqlite.Results(database)
    check_overlap(bootstrap_servers, topic, first, second)


def test_overlap_in_postgresql(bootstrap_servers: str, topic: str) -> None:
    with postgresql() as uri:
        first, second = offsets_in_postgresql.Results(uri), offsets_in_postgresql.Results(uri)
        check_overlap(bootstrap_servers, topic, first, second)
