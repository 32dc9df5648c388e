"""Producers: how fast each fills a topic, until the last record is acknowledged, and what it costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.broker import create_topic
from benchmarks.measure import alternate
from benchmarks.peers import ApacheKafka, BrokerProcess, Millstream, fetch_jars
from benchmarks.report import Section, ratio, table
from benchmarks.senders import BATCH_BYTES, LINGER_MS, ROWS, SENDERS

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "2000000"))
SLOW = {"kafka-python send": 20, "aiokafka send": 20}
"""Who sends only so small a part of the records, to be done some day."""
PEER = "confluent-kafka produce"
SECONDS = 300.0


@dataclass
class Costs:
    """What one sender took, round by round."""

    cpu: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def run() -> list[Section]:
    """All measurements of producers; those on Apache Kafka need Java and Maven."""
    sections = []
    with Millstream() as broker:
        for title, size in (("100 B", 100), ("1 KiB", 1024)):
            for acks in ("1", "all"):
                print(f"  sending {title}, acks={acks}")
                sections.append(_section(f"Producers: {title} records, acks={acks}", broker, size, acks))
    if fetch_jars():
        with ApacheKafka() as kafka:
            print("  sending 100 B to Apache Kafka, acks=1")
            sections.append(_section("Producers: 100 B records to Apache Kafka, acks=1", kafka, 100, "1"))
    return sections


def _records(name: str, size: int) -> int:
    """A tenth of as many where they are ten times as large; whole calls of send_arrow."""
    count = RECORDS if size <= 100 else RECORDS // 5
    return max(ROWS, count // SLOW.get(name, 1) // ROWS * ROWS)


def _send(
    name: str, broker: BrokerProcess, size: int, acks: str, costs: dict[str, Costs]
) -> Callable[[], float]:
    def once() -> float:
        topic = create_topic(broker.bootstrap_servers)
        arguments = (name, broker.bootstrap_servers, topic, str(_records(name, size)), str(size), acks)
        command = [sys.executable, "-m", "benchmarks.senders", *arguments]
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
        finally:
            _delete_topic(broker.bootstrap_servers, topic)
        took = json.loads(done.stdout)
        costs[name].cpu.append(took["cpu"])
        costs[name].peak_mb.append(took["peak_mb"])
        return float(took["rate"])

    return once


def _delete_topic(servers: str, topic: str) -> None:
    """So that the disk does not fill up, and nobody sends while the records of others are written back."""
    from millstream.admin import Admin

    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics(topic)
    os.sync()


def _section(title: str, broker: BrokerProcess, size: int, acks: str) -> Section:
    costs = {name: Costs() for name in SENDERS}
    rates = alternate({name: _send(name, broker, size, acks, costs) for name in SENDERS}, ROUNDS)
    rows = [
        (
            name,
            f"{measured.median:,.0f} ({measured.spread})",
            ratio(measured.median, rates[PEER].median),
            f"{statistics.median(costs[name].cpu):.2f} s",
            f"{statistics.median(costs[name].peak_mb):.0f} MB",
        )
        for name, measured in rates.items()
    ]
    head = ("", "records/s", f"beside {PEER}", "CPU for 1 M records", "peak memory")
    return Section(
        title,
        f"{_records(PEER, size):,} records (aiokafka and kafka-python: a twentieth) without keys into one "
        f"partition of {broker.name}, in batches of {BATCH_BYTES // 1024} KiB, linger {LINGER_MS} ms, not "
        f"compressed. Until the last one is acknowledged. Each sender is a process of its own, in turns, "
        f"medians of {ROUNDS} (range in brackets), after a warm-up. send_arrow gets {ROWS:,} rows a call; "
        "produce without on_delivery does not say whether a record was written.\n\n" + table(head, rows),
    )
