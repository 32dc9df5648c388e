"""Groups and waiting consumers: latency beside confluent-kafka, idle CPU, assignors, and a group of 1,000."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka

from benchmarks import assignors
from benchmarks.measure import alternate
from benchmarks.peers import Millstream
from benchmarks.report import Section, ratio, table
from millstream import Consumer, Producer
from millstream.admin import Admin

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = 400
PAUSE_S = 0.005
IDLE_S = 5.0


def run() -> list[Section]:
    """All measurements of groups."""
    with Millstream() as broker:
        sections = [latency(broker.bootstrap_servers), idle(broker.bootstrap_servers)]
    return [*sections, assignors.section(), settling()]


# --- latency: from send() to the waiting consumer


def latency(servers: str) -> Section:
    """How long a new record takes to a consumer that waits for it, in turns with confluent-kafka."""
    median: dict[str, list[float]] = {"millstream": [], "confluent-kafka": []}
    tail: dict[str, list[float]] = {"millstream": [], "confluent-kafka": []}

    def once(
        name: str, poll: Callable[[str, str], Iterator[Callable[[], list[bytes]]]]
    ) -> Callable[[], float]:
        def measure() -> float:
            figures = _latencies(servers, poll)
            median[name].append(statistics.median(figures))
            tail[name].append(sorted(figures)[int(len(figures) * 0.99)])
            return median[name][-1]

        return measure

    print("  latency, ms")
    alternate(
        {"millstream": once("millstream", _ours), "confluent-kafka": once("confluent-kafka", _theirs)}, ROUNDS
    )
    rows = [
        (name, f"{statistics.median(median[name]):.2f} ms", f"{statistics.median(tail[name]):.2f} ms")
        for name in median
    ]
    mine, theirs = (statistics.median(median[name]) for name in median)
    return Section(
        "Consumer: latency of a new record",
        "From `send` (our producer, linger 0, acks=all, so an fdatasync is in it) to the return of the "
        f"waiting `poll`; embedded broker, one record every {PAUSE_S * 1000:.0f} ms, {RECORDS} records a "
        f"round, in turns, medians of {ROUNDS} rounds.\n\n"
        + table(("consumer", "median", "99th percentile"), rows)
        + f"\n\nmillstream / confluent-kafka: {ratio(mine, theirs)}",
    )


def _latencies(servers: str, poll: Callable[[str, str], Iterator[Callable[[], list[bytes]]]]) -> list[float]:
    topic = f"latency-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
    found: list[float] = []
    with (
        Producer(bootstrap_servers=servers, linger_ms=0) as producer,
        contextmanager(poll)(servers, topic) as read,
    ):
        producer.send(topic, b"warm up").result(30)
        while not read():
            continue
        sender = threading.Thread(target=_send, args=(producer, topic))
        sender.start()
        while len(found) < RECORDS:
            values = read()
            now = time.perf_counter()
            found += [1000 * (now - float(value)) for value in values]
        sender.join()
    return found


def _send(producer: Producer, topic: str) -> None:
    for _ in range(RECORDS):
        time.sleep(PAUSE_S)
        producer.send(topic, repr(time.perf_counter()).encode())


def _ours(servers: str, topic: str) -> Iterator[Callable[[], list[bytes]]]:
    with Consumer(
        bootstrap_servers=servers, group_id=uuid.uuid4().hex, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        yield lambda: [record.value for record in consumer.poll(1.0)]


def _theirs(servers: str, topic: str) -> Iterator[Callable[[], list[bytes]]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])

    def read() -> list[bytes]:
        message = consumer.poll(1.0)
        return [] if message is None or message.error() else [message.value() or b""]

    yield read
    consumer.close()


# --- idle


def idle(servers: str) -> Section:
    """CPU of a consumer process that waits in poll() for records that do not come."""
    program = f"""
import os, time
from millstream import Consumer
with Consumer(bootstrap_servers={servers!r}, group_id="idle", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["idle"])
    consumer.poll(2.0)
    before, began = os.times(), time.monotonic()
    while time.monotonic() - began < {IDLE_S}:
        consumer.poll(1.0)
    after = os.times()
    print((after.user + after.system - before.user - before.system) / {IDLE_S} * 100)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return Section(
        "Consumer: idle",
        f"A member of a group that waits in `poll` for {IDLE_S:.0f} s uses "
        f"**{float(ended.stdout):.2f} %** of a core.",
    )


# --- a large group, in simulation


def settling() -> Section:
    """1,000 consumers and 10,000 partitions, with their coordinator, in one process and virtual time."""
    command = [sys.executable, "-m", "tests.sim.scale"]
    began = time.perf_counter()
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    took = time.perf_counter() - began
    return Section(
        "Groups: 1,000 members, 10,000 partitions",
        f"They settle in simulation (`python -m tests.sim.scale`) in {took:.1f} s of real time:\n\n"
        f"```\n{ended.stdout.strip()}\n```",
    )
