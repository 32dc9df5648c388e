"""Threads, futures and callbacks; flush, close, and the ends that nobody planned."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import (
    ClosedError,
    MillstreamTimeoutError,
    MisuseError,
)
from millstream.model import RecordMetadata
from millstream.producer import Producer, RecordFuture
from tests.system.producing import make_topic
from tests.system.reading import read_topic
from tests.waiting import SECONDS, until


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    return make_topic(admin, 3)


@pytest.fixture
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


# -- threads, futures, the end


def test_many_threads_share_a_producer(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=1000) as producer:

        def work(number: int) -> None:
            for n in range(500):
                producer.send(topic, b"%d %d" % (number, n), b"%d" % number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    seen: dict[int, list[int]] = {}
    for records in read_topic(bootstrap_servers, topic):
        for record in records:
            number, n = map(int, (record.value or b"").split())
            seen.setdefault(number, []).append(n)
    assert seen == {number: list(range(500)) for number in range(8)}


def test_each_thread_learns_where_its_own_records_are(bootstrap_servers: str, topic: str) -> None:
    """Futures are kept by some, dropped by others, and never mixed up."""
    kept: list[tuple[bytes, RecordFuture]] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that threads meet in the middle of a send
    try:
        with Producer(bootstrap_servers=bootstrap_servers, batch_size=2000) as producer:

            def work(number: int) -> None:
                for n in range(1500):
                    value = b"%d %d" % (number, n)
                    key = b"%d" % (n % 5) if number % 2 else None
                    future = producer.send(topic, value, key)
                    if n % (number + 1) == 0:
                        kept.append((value, future))
                    del future

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
    finally:
        sys.setswitchinterval(interval)
    partitions = read_topic(bootstrap_servers, topic)
    assert sum(map(len, partitions)) == 4 * 1500
    assert len({id(future) for _, future in kept}) == len(kept) == 1500 + 750 + 500 + 375
    for value, future in kept:
        placed = future.result(0)
        assert partitions[placed.partition][placed.offset].value == value


def test_closing_while_others_send(bootstrap_servers: str, topic: str) -> None:
    """Each record has an outcome, and those that were accepted are there."""
    producer = Producer(bootstrap_servers=bootstrap_servers, batch_size=1000)
    producer.send(topic, b"first").result(SECONDS)
    futures: list[RecordFuture] = []

    def work() -> None:
        with contextlib.suppress(ClosedError):
            while True:
                futures.append(producer.send(topic, b"v"))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(futures) > 3000, "records are sent")
    producer.close(SECONDS)
    for thread in threads:
        thread.join(SECONDS)
    errors = [future.exception(SECONDS) for future in futures]
    assert all(error is None or isinstance(error, ClosedError) for error in errors)
    delivered = sum(error is None for error in errors) + 1
    assert sum(map(len, read_topic(bootstrap_servers, topic))) >= delivered > 3000


def test_a_send_that_a_close_overtakes_is_refused(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, b"v").result(SECONDS)
    producer.close()
    with pytest.raises(ClosedError):  # send() has looked already whether the producer is open
        producer._intake.send(topic, b"v", None, (), None, None)


def test_futures_work_with_the_library_and_asyncio(producer: Producer, topic: str) -> None:
    futures = [producer.send(topic, b"v") for _ in range(100)]
    assert concurrent.futures.wait(futures, SECONDS).done == set(futures)

    async def send() -> RecordMetadata:
        return await asyncio.wrap_future(producer.send(topic, b"v", partition=0))

    assert asyncio.run(send()).partition == 0


def test_flush_waits_for_callbacks(bootstrap_servers: str, topic: str) -> None:
    called, seen = [], []
    entered, release = threading.Event(), threading.Event()

    def callback(future: object) -> None:
        entered.set()
        release.wait(SECONDS)
        called.append(future)

    def flush(producer: Producer) -> None:
        producer.flush(SECONDS)
        seen.append(len(called))

    # It lingers, so that the callback is there before the outcome.
    patient: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    with Producer(bootstrap_servers=bootstrap_servers, **patient) as producer:
        producer.send(topic, b"v").add_done_callback(callback)
        thread = threading.Thread(target=flush, args=(producer,))
        thread.start()
        assert entered.wait(SECONDS)
        thread.join(0.1)  # time enough to return too early
        release.set()
        thread.join(SECONDS)
    assert seen == [1]


def test_callbacks_may_send_but_not_wait(bootstrap_servers: str, topic: str) -> None:
    outcomes: list[Any] = []
    finished = threading.Event()

    # It lingers, so that there is a callback before there is an outcome: later, this thread would call it.
    patient: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    with Producer(bootstrap_servers=bootstrap_servers, **patient) as producer:

        def callback(future: object) -> None:
            outcomes.append(producer.send(topic, b"from a callback"))
            for wait in (producer.flush, lambda: producer.send("unknown-topic-in-callback", b"v")):
                try:
                    wait()
                except MisuseError as error:
                    outcomes.append(error)
            finished.set()

        producer.send(topic, b"v").add_done_callback(callback)
        producer.flush(SECONDS)
        assert finished.wait(SECONDS)
        producer.flush(SECONDS)
        assert outcomes[0].result(0).topic == topic
    assert len(outcomes) == 3


def test_flush_waits_for_all_and_close_delivers(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(topic, b"v")
    producer.flush(SECONDS)
    assert future.done()
    last = producer.send(topic, b"v")
    producer.close()
    assert last.result(0).offset >= 0
    producer.close()
    for use in (lambda: producer.send(topic, b"v"), producer.flush, lambda: producer.partitions_for(topic)):
        with pytest.raises(ClosedError):
            use()


def test_close_in_time_fails_what_is_left(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("t", b"v").result(SECONDS)
        broker.kill()
        future = producer.send("t", b"v")
        with pytest.raises(MillstreamTimeoutError, match="1 records were not delivered"):
            producer.flush(0.1)
        producer.close(0.2)
        with pytest.raises(ClosedError, match="closed before the record was delivered"):
            future.result(0)


def test_closing_in_a_callback(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, b"v").add_done_callback(lambda future: producer.close())
    until(lambda: not producer._io._thread.is_alive(), "the thread has ended")


def test_a_forgotten_producer_delivers_and_ends(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=200)
    thread = producer._io._thread
    future = producer.send(topic, b"v")
    del producer
    gc.collect()
    assert future.result(SECONDS).offset >= 0
    until(lambda: not thread.is_alive(), "the thread has ended")


def test_the_end_of_the_interpreter_delivers_but_does_not_hang(bootstrap_servers: str, topic: str) -> None:
    program = f"""
from millstream.producer import Producer, RecordFuture
producer = Producer(bootstrap_servers="{bootstrap_servers}", linger_ms=60000, delivery_timeout_ms=120000)
producer.send("{topic}", b"never closed", partition=0)
"""
    subprocess.run([sys.executable, "-c", program], timeout=SECONDS, check=True)
    (record,) = read_topic(bootstrap_servers, topic)[0]
    assert record.value == b"never closed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(producer: Producer, topic: str) -> None:
    producer.send(topic, b"v", partition=0).result(SECONDS)
    pending = producer.send(topic, b"v", partition=0)
    child = os.fork()
    if child == 0:
        code = 0
        for use in (lambda: producer.send(topic, b"v"), producer.flush):
            try:
                use()
                code = 1
            except MisuseError:
                continue
        try:
            pending.result(1)
        except MisuseError:
            producer.close()
            os._exit(code)
        os._exit(3 if not pending.done() else code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert producer.send(topic, b"v", partition=0).result(SECONDS).offset == 2


def test_metrics(producer: Producer, topic: str) -> None:
    producer.send(topic, b"v", partition=0).result(SECONDS)
    before = producer.metrics()  # Kafka may have refused the first one: the partition was just made
    producer.send(topic, b"v", partition=0).result(SECONDS)
    metrics = producer.metrics()
    assert metrics["bytes_sent"] > metrics["batch_bytes"] > 0
    for name in ("records_delivered", "batches_sent", "request_latency_ms.Produce.count"):
        assert metrics[name] - before[name] == 1, name
