"""Spark's writes to topics: ours beside Spark's own Kafka sink, by time and by processor time."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.measure import Measured, alternate
from benchmarks.peers import Millstream
from benchmarks.report import Section, ratio, table
from benchmarks.spark_peer import CORES, SIZE, delete, fetch_spark_jars, spark_session
from millstream.admin import Admin

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "2000000"))
PARTITIONS = 4
OURS, PEER = "millstream", "Spark's kafka sink"
FORMATS = {OURS: "millstream", PEER: "kafka"}
FRAMES = {
    "without keys": "value",
    "with keys": "cast(id as string) key, value",
}


def run() -> list[Section]:
    """All measurements of writes; they need Java, and Maven for Spark's own sink."""
    jars = fetch_spark_jars()
    if jars is None:
        print("  left out: Spark's Kafka sink cannot be had without Maven")
        return []
    place = Path(tempfile.mkdtemp(prefix="millstream-writers-"))
    try:
        with Millstream() as broker:
            spark = spark_session(jars, place)
            try:
                return [Bench(spark, broker.bootstrap_servers).section()]
            finally:
                spark.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Bench:
    """One Spark, one broker, and the same rows written by each contestant."""

    def __init__(self, spark: Any, servers: str) -> None:
        self._spark = spark
        self._servers = servers
        self._cpu: dict[str, Measured] = {}

    def section(self) -> Section:
        rows: list[tuple[str, ...]] = []
        ratios: list[str] = []
        for name, columns in FRAMES.items():
            frame = self._frame(columns, RECORDS)
            print(f"  {name}: writing {RECORDS:,} records, rows/s")
            self._cpu = {contestant: Measured() for contestant in FORMATS}
            jobs = {each: self._timed(frame, each) for each in FORMATS}
            for job in jobs.values():
                job()
            self._cpu = {contestant: Measured() for contestant in FORMATS}
            found = alternate(jobs, ROUNDS)
            frame.unpersist()
            rows += [
                (name, each, f"{one.median:,.0f} rows/s", one.spread, f"{self._cpu[each].median:.2f} s")
                for each, one in found.items()
            ]
            times = ratio(found[OURS].median, found[PEER].median)
            cpu = ratio(self._cpu[PEER].median, self._cpu[OURS].median)
            ratios.append(f"{name}: {times} by time, {cpu} by processor time")
        return Section("Writes: beside Spark's own Kafka sink", self._told(rows, ratios))

    def _told(self, rows: list[tuple[str, ...]], ratios: list[str]) -> str:
        return (
            f"{RECORDS:,} cached rows with values of {SIZE} bytes, written with the default settings of each "
            f"to {PARTITIONS} partitions of the embedded broker by one Spark session of {CORES} cores, each "
            f"once before; then in turns, medians of {ROUNDS} rounds. Processor time is that of Spark and "
            "its Python workers.\n\n"
            + table(("rows", "sink", "median", "all rounds", "processor time"), rows)
            + "\n\n"
            + "; ".join(ratios)
            + " (wanted: 3x)"
        )

    def _frame(self, columns: str, count: int) -> Any:
        value = f"cast(rpad(concat('{{\"id\":', id, ',\"note\":\"'), {SIZE}, '.') as binary) value"
        frame = self._spark.range(0, count, 1, CORES).selectExpr("id", value).selectExpr(*_split(columns))
        frame.persist()
        assert frame.count() == count
        return frame

    def _timed(self, frame: Any, contestant: str) -> Callable[[], float]:
        def once() -> float:
            topic = f"writes-{uuid.uuid4().hex[:8]}"
            with Admin(bootstrap_servers=self._servers) as admin:
                admin.create_topic(topic, partitions=PARTITIONS)
            cpu, began = processor_seconds(), time.perf_counter()
            writer = frame.write.format(FORMATS[contestant]).mode("append").option("topic", topic)
            writer.option("kafka.bootstrap.servers", self._servers).save()
            took = time.perf_counter() - began
            self._cpu[contestant].figures.append(processor_seconds() - cpu)
            self._check(topic)
            delete(self._servers, topic)
            return RECORDS / took

        return once

    def _check(self, topic: str) -> None:
        reader = self._spark.read.format("millstream").option("kafka.bootstrap.servers", self._servers)
        found = reader.option("subscribe", topic).load().count()
        assert found == RECORDS, f"{found} records instead of {RECORDS}"


def _split(columns: str) -> list[str]:
    return [each.strip() for each in columns.split(", ")]


def processor_seconds() -> float:
    """Of Spark: this program's Java, and the Python processes that it has started."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "broker" in process.cmdline():
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
