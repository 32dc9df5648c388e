"""The broker: throughput with Kafka's own tools, start, memory, and a thousand partitions."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks.measure import Measured, alternate
from benchmarks.peers import KAFKA, ApacheKafka, BrokerProcess, Millstream, fetch_jars, java
from benchmarks.report import Section, ratio, table

TOOLS = "org.apache.kafka.tools."
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = {100: 500_000, 1024: 100_000}


def run() -> list[Section]:
    """All measurements of the broker; those beside Apache Kafka need Java and Maven."""
    sections = [start_and_partitions()]
    if fetch_jars():
        sections.append(throughput())
    sections.append(memory())
    return sections


def create_topic(servers: str, partitions: int = 1) -> str:
    from millstream.admin import Admin

    name = f"bench-{uuid.uuid4().hex[:12]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def produce(broker: BrokerProcess, topic: str, size: int, count: int, acks: str = "all") -> float:
    """Records a second, by Kafka's ProducerPerformance."""
    command = java(
        TOOLS + "ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", f"acks={acks}"),
    )
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    found = re.search(rf"^{count} records sent, ([0-9.]+) records/sec", output, re.MULTILINE)
    assert found, output
    return float(found[1])


def consume(broker: BrokerProcess, topic: str, count: int) -> float:
    """Records a second while fetching, by Kafka's ConsumerPerformance."""
    command = java(
        TOOLS + "ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--messages", str(count)),
        *("--hide-header", "--group", uuid.uuid4().hex, "--timeout", "60000"),
    )
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    fields = output.strip().splitlines()[-1].split(", ")
    assert int(fields[4]) >= count, output
    return float(fields[9])


def throughput() -> Section:
    """Producing and consuming with the same Java tools on both brokers, in turns."""
    rows = []
    with Millstream() as ours, ApacheKafka() as theirs:
        brokers: tuple[BrokerProcess, ...] = (ours, theirs)
        for size, count in RECORDS.items():
            topics = {broker.name: create_topic(broker.bootstrap_servers) for broker in brokers}
            for broker in brokers:  # warm up, and leave something to read
                produce(broker, topics[broker.name], size, count)
            print(f"  consume, {size} B")
            read = alternate({b.name: partial(consume, b, topics[b.name], count) for b in brokers}, ROUNDS)
            for acks in ("1", "all"):
                print(f"  produce, {size} B, acks={acks}")
                write = alternate({b.name: _produce_afresh(b, size, count, acks) for b in brokers}, ROUNDS)
                rows.append(_row(f"produce {size} B, acks={acks}", write, ours, theirs))
            rows.append(_row(f"consume {size} B", read, ours, theirs))
    text = table(("", "millstream rec/s", "Apache Kafka rec/s", "ratio"), rows)
    return Section(
        f"Broker: throughput beside {KAFKA}",
        "Kafka's own ProducerPerformance and ConsumerPerformance, one partition, both brokers running, "
        f"in turns, medians of {ROUNDS} (range in brackets). With acks=1 both answer from the page cache. "
        "With acks=all ours waits for an fdatasync, which several requests share; Apache Kafka with one "
        "replica does not, so there the disk is measured: an fdatasync of 80 KB, the five batches that "
        f"this producer keeps in flight, took {sync_ms():.2f} ms (median) beside these runs.\n\n" + text,
    )


def sync_ms() -> float:
    """How long the disk takes to make an appended 80 KB durable: the median of 100, in milliseconds."""
    times = []
    with tempfile.TemporaryFile(dir=Path.cwd()) as file:
        for number in range(100):
            os.pwrite(file.fileno(), os.urandom(81920), number * 81920)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def _produce_afresh(broker: BrokerProcess, size: int, count: int, acks: str) -> Callable[[], float]:
    def once() -> float:
        return produce(broker, create_topic(broker.bootstrap_servers), size, count, acks)

    return once


def _row(
    what: str, measured: dict[str, Measured], ours: BrokerProcess, theirs: BrokerProcess
) -> tuple[str, ...]:
    mine, other = measured[ours.name], measured[theirs.name]
    return (
        what,
        f"{mine.median:,.0f} ({mine.spread})",
        f"{other.median:,.0f} ({other.spread})",
        ratio(mine.median, other.median),
    )


def start_and_partitions() -> Section:
    """Seconds to the first answer: empty, with 1,000 partitions, and beside Apache Kafka if it is there."""
    contestants: dict[str, Callable[[], float]] = {"millstream": partial(_cold_start, Millstream)}
    if fetch_jars():
        contestants[KAFKA] = partial(_cold_start, ApacheKafka)
    print("  start")
    starts = alternate(contestants, ROUNDS)
    rows = [(f"start, {name}", f"{measured.median:.2f} s") for name, measured in starts.items()]
    rows += _thousand_partitions()
    return Section(
        "Broker: start",
        "From the start of the process to the first answered request.\n\n" + table(("", "median"), rows),
    )


def _cold_start(kind: type[BrokerProcess]) -> float:
    broker = kind()
    broker.prepare()
    try:
        return broker.start()
    finally:
        broker.__exit__(None, None, None)


def _thousand_partitions() -> list[tuple[str, str]]:
    with Millstream() as broker:
        began = time.perf_counter()
        create_topic(broker.bootstrap_servers, partitions=1000)
        created = time.perf_counter() - began
        broker.stop()
        clean = broker.start()
        assert broker.process is not None, "it was just started"
        broker.process.kill()
        broker.process.wait()
        crashed = broker.start()
    return [
        ("create 1,000 partitions", f"{created:.2f} s"),
        ("start with 1,000 partitions after a clean stop", f"{clean:.2f} s"),
        ("start with 1,000 partitions after SIGKILL", f"{crashed:.2f} s"),
    ]


def memory() -> Section:
    """Resident memory after 1 GB was written and read back."""
    with Millstream() as broker:
        topic = create_topic(broker.bootstrap_servers)
        if fetch_jars():
            produce(broker, topic, 1024, 1_000_000)
            consume(broker, topic, 1_000_000)
        assert broker.process is not None, "it is running"
        info = psutil.Process(broker.process.pid).memory_info()
    return Section(
        "Broker: memory",
        "Resident memory of the broker's process after 1 GB was produced and consumed: "
        f"**{info.rss / 1e6:.0f} MB**.",
    )
