"""Clients: how fast each reads the same topic, what it costs, and how soon the first record is there."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from benchmarks import java_reader, targets
from benchmarks.broker import create_topic
from benchmarks.measure import Measured, alternate
from benchmarks.peers import ApacheKafka, BrokerProcess, Millstream, fetch_jars
from benchmarks.readers import READERS
from benchmarks.report import Section, ratio, table

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "4000000"))
SHARES = {
    "millstream poll_arrow": 3.0,
    "millstream poll": 0.6,
    "millstream iterate": 0.6,
    "confluent-kafka consume, tuned": 0.6,
    "confluent-kafka consume": 0.1,
    "confluent-kafka poll, tuned": 0.3,
    "confluent-kafka poll": 0.1,
    "aiokafka": 0.04,
    "kafka-python": 0.04,
    "raw limit": 5.0,
}
"""How much of the topic each reads, so that each works for a second or two; above 1: more than once."""
ARROW, POLL = "millstream poll_arrow", "millstream poll"
PEER = "confluent-kafka consume, tuned"
LIMIT = "raw limit"
JAVA = "Java ConsumerPerformance"
FAST = (ARROW, POLL, PEER, LIMIT)
SECONDS = 300.0


@dataclass
class Taken:
    """What one reader took, round by round."""

    rates: Measured = field(default_factory=Measured)
    cpu: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)

    def typical(self) -> targets.Figures:
        return targets.Figures(
            self.rates.median, statistics.median(self.cpu), statistics.median(self.peak_mb)
        )


def run() -> Iterator[Section]:
    """All measurements of reading clients; those with Java need it and Maven."""
    with Millstream() as broker:
        with _topic(broker, RECORDS, 100, "none") as topic:
            names = [*READERS, JAVA] if fetch_jars() else list(READERS)
            taken = read(broker, topic, RECORDS, names)
            yield _section(READING, _PLAIN, broker, RECORDS, taken)
            figures = {name: each.typical() for name, each in taken.items()}
            yield targets.section(figures, targets.profile(broker, topic, RECORDS))
            yield first_record(broker, topic)
        for size, codec in ((100, "lz4"), (100, "zstd"), (1024, "none"), (1024, "lz4"), (1024, "zstd")):
            yield _variant(broker, size, codec)
    if fetch_jars():
        with ApacheKafka() as kafka, _topic(kafka, RECORDS, 100, "none") as topic:
            taken = read(kafka, topic, RECORDS, [*FAST, JAVA])
            yield _section(f"{READING} from Apache Kafka", "", kafka, RECORDS, taken)


READING = "Clients: reading 100 B records"


def _variant(broker: BrokerProcess, size: int, codec: str) -> Section:
    """The same with records of another size, or compressed: the fastest of each kind."""
    records = RECORDS // 2 if size == 100 else RECORDS // 10
    shown = f"{'100 B' if size == 100 else '1 KiB'} records, {'plain' if codec == 'none' else codec}"
    with _topic(broker, records, size, codec) as topic:
        taken = read(broker, topic, records, FAST)
        return _section(f"Clients: reading {shown}", "", broker, records, taken)


# --- topics


@contextmanager
def _topic(broker: BrokerProcess, count: int, size: int, codec: str) -> Iterator[str]:
    from millstream.admin import Admin

    print(f"  {count:,} records of {size} B, {codec}, in {broker.name}", flush=True)
    topic = fill(broker, count, size, codec)
    yield topic
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics(topic)


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
            "acks": 1,
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


# --- reading


def read(broker: BrokerProcess, topic: str, records: int, names: Iterable[str]) -> dict[str, Taken]:
    """Have each read the topic, in turns, round after round."""
    taken = {name: Taken() for name in names}
    rates = alternate({name: _once(name, broker, topic, records, taken[name]) for name in taken}, ROUNDS)
    for name, measured in rates.items():
        taken[name].rates = measured
    return taken


def _once(name: str, broker: BrokerProcess, topic: str, records: int, taken: Taken) -> Callable[[], float]:
    def once() -> float:
        if name == JAVA:
            took = java_reader.read(broker, topic, records)
        else:
            count = max(1, int(records * SHARES[name]))
            took = json.loads(_reader(name, broker, topic, str(count)))
        taken.cpu.append(took["cpu"])
        taken.peak_mb.append(took["peak_mb"])
        return float(took["rate"])

    return once


def _reader(name: str, broker: BrokerProcess, topic: str, records: str) -> str:
    command = [sys.executable, "-m", "benchmarks.readers", name, broker.bootstrap_servers, topic, records]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout


_PLAIN = (
    "Key, value and offset of each record are touched, or there as columns. millstream, aiokafka and "
    "kafka-python check CRCs; confluent-kafka (by default) and ConsumerPerformance (always) do not. "
    "consume() is asked for 10,000 records, our poll() for its default of 500; confluent-kafka's poll() "
    "gives one. Tuned: `queued.min.messages=1000000`, `fetch.queue.backoff.ms=1`, "
    "`queued.max.messages.kbytes=1048576`. The raw limit is a socket that sends the same fetches, two at a "
    "time, and drops the answers. Java has no warm-up, and its CPU and memory are those of the whole "
    "process, with its start. The fast read more than the slow, for figures that mean something: from 4 % of "
    "the topic (aiokafka, kafka-python) over 60 % (our poll, consume, tuned) to three times (poll_arrow). "
)


def _section(
    title: str, remarks: str, broker: BrokerProcess, records: int, taken: Mapping[str, Taken]
) -> Section:
    peer, limit = (taken[name].rates.median for name in (PEER, LIMIT))
    rows = [
        (
            name,
            f"{each.rates.median:,.0f} ({each.rates.spread})",
            ratio(each.rates.median, peer),
            f"{each.rates.median / limit:.0%}",
            f"{each.typical().cpu:.2f} s",
            f"{each.typical().peak_mb:.0f} MB",
        )
        for name, each in taken.items()
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
    names = (POLL, ARROW, "confluent-kafka poll", "aiokafka", "kafka-python")
    figures = alternate({name: partial(once, name) for name in names}, ROUNDS)
    rows = [(name, f"{measured.median:.2f} s") for name, measured in figures.items()]
    return Section(
        "Clients: the first record",
        "From the start of a Python process that reads one record to its end.\n\n"
        + table(("", "median"), rows),
    )
