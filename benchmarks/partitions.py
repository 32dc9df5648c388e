"""Producers over 1 to 10,000 partitions: how their rate and their cost grow with the partitions."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from benchmarks.broker import create_topic
from benchmarks.measure import Measured, alternate
from benchmarks.peers import BrokerProcess, Millstream
from benchmarks.producers import delete_topic
from benchmarks.report import Section, ratio, table
from benchmarks.senders import BATCH_BYTES, LINGER_MS
from benchmarks.spread import SENDERS, SIZE

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = {1: 1_000_000, 100: 500_000, 1_000: 300_000, 10_000: 100_000}
"""How many records are sent to so many partitions."""
OURS, PEER = SENDERS
WARM_UP = 100_000
"""Records that are sent to a new broker before any are counted."""
SETTLE_S = 0.5
QUIET = 0.05
"""A broker that takes less of a core than this has loaded its loops."""
SECONDS = 600.0
_BAR = 40


@dataclass
class Growth:
    """What one sender took, round by round, with one number of partitions."""

    rates: Measured = field(default_factory=Measured)
    cpu_us: list[float] = field(default_factory=list)
    broker_us: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def run() -> Iterator[Section]:
    """One section for acks=1, one for acks=all."""
    for acks in ("1", "all"):
        with Millstream() as broker:
            _warm_up(broker, acks)
            taken = {partitions: _taken(broker, partitions, acks) for partitions in RECORDS}
        yield _section(acks, taken)


def _warm_up(broker: BrokerProcess, acks: str) -> None:
    """Let the broker load its compiled loops, which it does at its first records: no sender's cost."""
    assert broker.process is not None, "it is running"
    _send(OURS, broker, 1, acks, Growth(), WARM_UP)()
    process = psutil.Process(broker.process.pid)
    before, now = 0.0, sum(process.cpu_times()[:2])
    while now - before > QUIET * SETTLE_S:
        time.sleep(SETTLE_S)
        before, now = now, sum(process.cpu_times()[:2])


def _taken(broker: BrokerProcess, partitions: int, acks: str) -> dict[str, Growth]:
    print(f"  sending to {partitions:,} partitions, acks={acks}")
    grown = {name: Growth() for name in SENDERS}
    records = RECORDS[partitions]
    rates = alternate(
        {name: _send(name, broker, partitions, acks, grown[name], records) for name in SENDERS}, ROUNDS
    )
    for name, measured in rates.items():
        grown[name].rates = measured
    return grown


def _send(
    name: str, broker: BrokerProcess, partitions: int, acks: str, growth: Growth, records: int
) -> Callable[[], float]:
    def once() -> float:
        assert broker.process is not None, "it is running"
        process = psutil.Process(broker.process.pid)
        topic = create_topic(broker.bootstrap_servers, partitions)
        arguments = (name, broker.bootstrap_servers, topic, str(partitions), str(records), acks)
        command = [sys.executable, "-m", "benchmarks.spread", *arguments]
        before = sum(process.cpu_times()[:2])
        try:
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
            growth.broker_us.append((sum(process.cpu_times()[:2]) - before) / records * 1e6)
        finally:
            delete_topic(broker.bootstrap_servers, topic)
        took = json.loads(done.stdout)
        growth.cpu_us.append(took["cpu_us"])
        growth.peak_mb.append(took["peak_mb"])
        return float(took["rate"])

    return once


def _section(acks: str, taken: Mapping[int, Mapping[str, Growth]]) -> Section:
    rows = [
        (
            f"{partitions:,}",
            *(f"{grown[name].rates.median:,.0f} ({grown[name].rates.spread})" for name in SENDERS),
            ratio(grown[OURS].rates.median, grown[PEER].rates.median),
            _both(grown, lambda one: one.cpu_us),
            _both(grown, lambda one: one.broker_us),
            _both(grown, lambda one: one.peak_mb, "MB"),
        )
        for partitions, grown in taken.items()
    ]
    head = ("partitions", *(f"{name} rec/s" for name in SENDERS), "ratio")
    costs = (f"CPU per record, {OURS} / {PEER}", "the broker's CPU per record", "peak memory")
    return Section(
        f"Producers: growth with partitions, acks={acks}",
        f"Records of {SIZE} B, sent to the partitions in turn (`partition=`), batches of "
        f"{BATCH_BYTES // 1024} KiB, linger {LINGER_MS} ms, not compressed"
        + (", idempotent" if acks == "all" else "")
        + "; a future is kept for each record, or a delivery report is counted. Until the last one is "
        f"acknowledged by the embedded broker. In turns, medians of {ROUNDS} (range in brackets). Where the "
        "machine is shared, rates vary with what else runs; processor time per record varies less. The "
        "broker has loaded its compiled loops before. Its time includes the warm-up, which writes to each "
        "partition for the first time.\n\n" + table((*head, *costs), rows) + "\n\n" + _drawn(taken),
    )


def _both(grown: Mapping[str, Growth], figures: Callable[[Growth], Sequence[float]], unit: str = "µs") -> str:
    ours, theirs = (statistics.median(figures(grown[name])) for name in SENDERS)
    digits = 0 if unit == "MB" else 1
    return f"{ours:,.{digits}f} / {theirs:,.{digits}f} {unit}"


def _drawn(taken: Mapping[int, Mapping[str, Growth]]) -> str:
    """The rates as bars of one scale."""
    longest = max(growth.rates.median for grown in taken.values() for growth in grown.values())
    lines = []
    for partitions, grown in taken.items():
        for name, growth in grown.items():
            bar = "█" * max(1, round(growth.rates.median / longest * _BAR))
            lines.append(f"{partitions:>6,} {name:<15} {bar:<{_BAR}} {growth.rates.median:>9,.0f}")
    return "```\n" + "\n".join(lines) + "\n```"
