"""Clients: how fast each reads the same topic, what it costs, and how soon the first record is there."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from benchmarks.broker import create_topic
from benchmarks.measure import alternate
from benchmarks.peers import ApacheKafka, BrokerProcess, Millstream, fetch_jars
from benchmarks.readers import READERS
from benchmarks.report import Section, ratio, table

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "5000000"))
SLOW = {"kafka-python": 20, "aiokafka": 20, "confluent-kafka": 10, "millstream iterate": 2}
"""Who reads only so small a part of the topic, to be done some day."""
PEER = "confluent-kafka tuned"
LIMIT = "raw limit"
FAST = ("millstream poll_arrow", "millstream poll", PEER, LIMIT)
SECONDS = 300.0


@dataclass
class Costs:
    """What one reader took, round by round."""

    cpu: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def run() -> list[Section]:
    """All measurements of reading clients; those on Apache Kafka need Java and Maven."""
    sections = []
    with Millstream() as broker:
        topic = fill(broker, RECORDS, 100, "none")
        print("  reading, 100 B")
        sections.append(_section("Clients: reading 100 B records", _PLAIN, broker, topic, RECORDS, READERS))
        sections.append(first_record(broker, topic))
        for title, size, codec in (
            ("100 B, lz4", 100, "lz4"),
            ("100 B, zstd", 100, "zstd"),
            ("1 KiB", 1024, "none"),
        ):
            count = RECORDS if size == 100 else RECORDS // 5
            topic = fill(broker, count, size, codec)
            print(f"  reading, {title}")
            sections.append(_section(f"Clients: reading {title}", "", broker, topic, count, FAST))
    if fetch_jars():
        with ApacheKafka() as kafka:
            topic = fill(kafka, RECORDS, 100, "none")
            print("  reading from Apache Kafka, 100 B")
            title = "Clients: reading 100 B records from Apache Kafka"
            sections.append(_section(title, "", kafka, topic, RECORDS, FAST))
    return sections


def fill(broker: BrokerProcess, count: int, size: int, codec: str) -> str:
    """A topic of one partition in batches of 16 KiB, as Kafka's producers make them by default."""
    from confluent_kafka import Producer

    topic = create_topic(broker.bootstrap_servers)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "batch.size": 16_384,
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )
    values = _values(size)
    for number in range(count):
        value = values[number % len(values)]
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    return topic


def _values(size: int) -> list[bytes]:
    """Text that shrinks to about a half, as records do."""
    chance = random.Random(5)
    words = [chance.randbytes(4).hex() for _ in range(200)]
    texts = (" ".join(chance.choices(words, k=size // 9 + 1)) for _ in range(1000))
    return [text[:size].encode() for text in texts]


def _read(
    name: str, broker: BrokerProcess, topic: str, records: int, costs: dict[str, Costs]
) -> Callable[[], float]:
    def once() -> float:
        count = records // SLOW.get(name, 1)
        took = json.loads(_reader(name, broker, topic, str(count)))
        costs[name].cpu.append(took["cpu"])
        costs[name].peak_mb.append(took["peak_mb"])
        return float(took["rate"])

    return once


def _reader(name: str, broker: BrokerProcess, topic: str, records: str) -> str:
    command = [sys.executable, "-m", "benchmarks.readers", name, broker.bootstrap_servers, topic, records]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout


_PLAIN = (
    "Key, value and offset of each record are touched, or there as columns; CRCs are checked. consume() is "
    "asked for 10,000 records, poll() for its default of 500. The raw limit is a socket that sends the same "
    "fetches, two at a time, and drops the answers. "
)


def _section(
    title: str,
    remarks: str,
    broker: BrokerProcess,
    topic: str,
    records: int,
    names: Iterable[str],
) -> Section:
    costs = {name: Costs() for name in names}
    rates = alternate({name: _read(name, broker, topic, records, costs) for name in costs}, ROUNDS)
    rows = [
        (
            name,
            f"{measured.median:,.0f} ({measured.spread})",
            ratio(measured.median, rates[PEER].median),
            f"{measured.median / rates[LIMIT].median:.0%}",
            f"{statistics.median(costs[name].cpu):.2f} s",
            f"{statistics.median(costs[name].peak_mb):.0f} MB",
        )
        for name, measured in rates.items()
    ]
    head = ("", "records/s", f"beside {PEER}", "of the raw limit", "CPU for 1 M records", "peak memory")
    return Section(
        title,
        f"{records:,} records in one partition of {broker.name}, in batches of 16 KiB. Each reader is a "
        f"process of its own, in turns, medians of {ROUNDS} (range in brackets), after a warm-up. {remarks}"
        "\n\n" + table(head, rows),
    )


def first_record(broker: BrokerProcess, topic: str) -> Section:
    """From the start of a Python process to its first record, and its end."""

    def once(name: str) -> float:
        began = time.perf_counter()
        _reader(name, broker, topic, "first")
        return time.perf_counter() - began

    print("  first record, s")
    names = ("millstream poll", "millstream poll_arrow", "confluent-kafka", "aiokafka", "kafka-python")
    figures = alternate({name: partial(once, name) for name in names}, ROUNDS)
    rows = [(name, f"{measured.median:.2f} s") for name, measured in figures.items()]
    return Section(
        "Clients: the first record",
        "From the start of a Python process that reads one record to its end.\n\n"
        + table(("", "median"), rows),
    )
