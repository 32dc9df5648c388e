"""How a load grows: with partitions, and with rows; and that its memory does not."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.report import Section, table
from benchmarks.spark_peer import SIZE, add, delete, fill
from millstream.spark.load.load import Load
from millstream.spark.sinks.delta.sink import DeltaSink

MOST_ROWS = int(os.environ.get("BENCH_MOST_ROWS", "50000000"))
ROWS = tuple(rows for rows in (1_000_000, 5_000_000, 10_000_000, 50_000_000) if rows <= MOST_ROWS) or (
    MOST_ROWS,
)
PARTITIONS = (1, 4, 16, 64)
SPREAD_ROWS = min(1_000_000, MOST_ROWS)
SAMPLE_SECONDS = 0.1


def sections(spark: Any, servers: str, place: Path) -> list[Section]:
    """Growth with partitions and with rows."""
    return [_by_partitions(spark, servers, place), _by_rows(spark, servers, place)]


def _by_partitions(spark: Any, servers: str, place: Path) -> Section:
    print(f"  {SPREAD_ROWS:,} rows in more and more partitions, s")
    rows = []
    for partitions in PARTITIONS:
        topic = fill(servers, SPREAD_ROWS, partitions)
        took, peak = _load(spark, servers, topic, place, SPREAD_ROWS)
        delete(servers, topic)
        print(f"    {partitions}: {took:.2f}")
        rows.append(
            (str(partitions), f"{took:.2f} s", f"{SPREAD_ROWS / took:,.0f} rows/s", f"{peak:,.0f} MB")
        )
    return Section(
        "Loads: growth with partitions",
        f"{SPREAD_ROWS:,} records of {SIZE} bytes, raw to Delta, in one run each.\n\n"
        + table(("partitions", "time", "rate", "peak memory"), rows),
    )


def _by_rows(spark: Any, servers: str, place: Path) -> Section:
    print("  more and more rows, s")
    found = []
    topic = fill(servers, 0, 4)
    there = 0
    for rows in ROWS:
        add(servers, topic, rows - there, 4)
        there = rows
        took, peak = _load(spark, servers, topic, place, rows)
        print(f"    {rows:,}: {took:.2f}, {peak:,.0f} MB")
        found.append((f"{rows:,}", f"{took:.2f} s", f"{rows / took:,.0f} rows/s", f"{peak:,.0f} MB"))
    delete(servers, topic)
    return Section(
        "Loads: growth with rows",
        f"Records of {SIZE} bytes in 4 partitions, raw to Delta, each time from the beginning into a new "
        "table. Peak memory is that of the driver, its JVM and Spark's Python workers together (resident, "
        "shared pages counted once).\n\n" + table(("rows", "time", "rate", "peak memory"), found),
    )


def _load(spark: Any, servers: str, topic: str, place: Path, rows: int) -> tuple[float, float]:
    """Seconds, and megabytes at the peak."""
    directory = tempfile.mkdtemp(dir=place)
    load = Load(
        spark,
        topics=[topic],
        group_id=uuid.uuid4().hex,
        bootstrap_servers=servers,
        sink=DeltaSink(directory),
    )
    try:
        with Peak() as peak:
            began = time.perf_counter()
            report = load.run_once()
            took = time.perf_counter() - began
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    assert report.loaded == rows, f"{report.loaded} rows instead of {rows}"
    return took, peak.megabytes


class Peak:
    """Watches the memory of this process and all that it has started, from a thread."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._done.wait(SAMPLE_SECONDS):
            self.megabytes = max(self.megabytes, memory([me, *me.children(recursive=True)]) / 1e6)


def memory(processes: Sequence[Any]) -> int:
    """Bytes that these processes hold: pages that they share count once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:  # it has ended meanwhile
            continue
    return total
