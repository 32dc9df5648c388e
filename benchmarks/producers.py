"""Producers: how fast each fills a topic, until the last record is acknowledged, and what it costs."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.broker import create_topic
from benchmarks.measure import Measured, alternate
from benchmarks.peers import ApacheKafka, BrokerProcess, Millstream, fetch_jars
from benchmarks.report import Section, ratio, table
from benchmarks.senders import BATCH_BYTES, LINGER_MS, ROWS, SENDERS
from benchmarks.targets import Target

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "2000000"))
SLOW = {"kafka-python send": 20, "aiokafka send": 20}
"""Who sends only so small a part of the records, to be done some day."""
PEER, PEER_TOLD = "confluent-kafka produce", "confluent-kafka produce, on_delivery"
ARROW, SEND = "millstream send_arrow", "millstream send"
SECONDS = 300.0


@dataclass
class Costs:
    """What one sender took, round by round."""

    rates: Measured = field(default_factory=Measured)
    cpu: list[float] = field(default_factory=list)
    thread: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def run() -> Iterator[Section]:
    """All measurements of producers; those on Apache Kafka need Java and Maven."""
    with Millstream() as broker:
        for title, size in (("100 B", 100), ("1 KiB", 1024)):
            for acks in ("1", "all"):
                print(f"  sending {title}, acks={acks}")
                taken = _taken(broker, size, acks)
                yield _section(f"Producers: {title} records, acks={acks}", broker, size, taken)
                if (size, acks) == (100, "1"):
                    yield _targets(taken)
    if fetch_jars():
        with ApacheKafka() as kafka:
            print("  sending 100 B to Apache Kafka, acks=1")
            taken = _taken(kafka, 100, "1")
            yield _section("Producers: 100 B records to Apache Kafka, acks=1", kafka, 100, taken)


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
            delete_topic(broker.bootstrap_servers, topic)
        took = json.loads(done.stdout)
        costs[name].cpu.append(took["cpu"])
        costs[name].thread.append(took["thread"])
        costs[name].peak_mb.append(took["peak_mb"])
        return float(took["rate"])

    return once


def delete_topic(servers: str, topic: str) -> None:
    """So that the disk does not fill up, and nobody sends while the records of others are written back."""
    from millstream.admin import Admin

    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics(topic)
    os.sync()


def _taken(broker: BrokerProcess, size: int, acks: str) -> dict[str, Costs]:
    costs = {name: Costs() for name in SENDERS}
    rates = alternate({name: _send(name, broker, size, acks, costs) for name in SENDERS}, ROUNDS)
    for name, measured in rates.items():
        costs[name].rates = measured
    return costs


def _section(title: str, broker: BrokerProcess, size: int, taken: Mapping[str, Costs]) -> Section:
    rows = [
        (
            name,
            f"{costs.rates.median:,.0f} ({costs.rates.spread})",
            ratio(costs.rates.median, taken[PEER].rates.median),
            f"{statistics.median(costs.cpu):.2f} s",
            f"{statistics.median(costs.peak_mb):.0f} MB",
        )
        for name, costs in taken.items()
    ]
    head = ("", "records/s", f"beside {PEER}", "CPU for 1 M records", "peak memory")
    return Section(
        title,
        f"{_records(PEER, size):,} records (aiokafka and kafka-python: a twentieth) without keys into one "
        f"partition of {broker.name}, in batches of {BATCH_BYTES // 1024} KiB, linger {LINGER_MS} ms, not "
        f"compressed. Until the last one is acknowledged. Each sender is a process of its own, in turns, "
        f"medians of {ROUNDS} (range in brackets), after a warm-up. send_arrow gets {ROWS:,} rows a call, "
        "a table that was made before; "
        "produce without on_delivery does not say whether a record was written.\n\n" + table(head, rows),
    )


def _targets(taken: Mapping[str, Costs]) -> Section:
    """What sending has to reach, and where its time goes: that is what limits it."""
    rates = {name: costs.rates.median for name, costs in taken.items()}
    wanted = [
        Target(f"{ARROW} beside {PEER}", rates[ARROW] / rates[PEER], 3.0),
        Target(f"{SEND} beside {PEER}", rates[SEND] / rates[PEER], 1.0),
        Target(f"{SEND} beside {PEER_TOLD}", rates[SEND] / rates[PEER_TOLD], 1.0),
    ]
    verdicts = [(one.what, f"at least {one.wanted:g}", f"{one.measured:.2f}", one.verdict) for one in wanted]
    times = [
        (
            name,
            f"{1e6 / costs.rates.median:.3f} s",
            f"{statistics.median(costs.thread):.3f} s",
            f"{statistics.median(costs.cpu) - statistics.median(costs.thread):.3f} s",
        )
        for name, costs in taken.items()
        if name in (ARROW, SEND, PEER, PEER_TOLD)
    ]
    return Section(
        "Producers: targets for sending",
        "Ratios of the table above, 100 B and acks=1.\n\n"
        + table(("", "wanted", "measured", ""), verdicts)
        + "\n\nWhere the time goes. `send` is limited by Python's lock: the caller's thread and the I/O "
        "thread need it in turns, so that their times add up to nearly the whole. `produce` without "
        "on_delivery has neither a future nor a word about what became of the record.\n\n"
        + table(("for 1 M records", "wall", "the caller's thread", "other threads"), times),
    )
