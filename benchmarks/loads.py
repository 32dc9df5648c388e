"""Loads beside Spark's own Kafka source: rows per second, latency of micro-batches, the start, growth."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import load_growth
from benchmarks.measure import Measured, alternate
from benchmarks.peers import Millstream
from benchmarks.report import Section, ratio, table
from benchmarks.spark_peer import CORES, SIZE, add, delete, fetch_spark_jars, fill, spark_session
from millstream.spark.load.load import Load
from millstream.spark.load.points import Detail, Point
from millstream.spark.sinks.delta.sink import DeltaSink

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
RECORDS = int(os.environ.get("BENCH_RECORDS", "5000000"))
PARTITIONS = 4
SCHEMA = "id LONG, country STRING, price DOUBLE, quantity INT"
CHECKS = ("price > 0", "quantity >= 0")
SAMPLES = 25
MICRO_BATCH = 1_000
STARTS = min(3, ROUNDS)
SECONDS = 300.0
RAW, RAW_PEER = "millstream, raw to Delta", "Spark's kafka source to Parquet"
JSON, JSON_PEER = (
    "millstream, JSON and 2 checks to Delta",
    "Spark's kafka source, from_json and filter to Parquet",
)


def run() -> list[Section]:
    """All measurements of loads; they need Java, and Maven for Spark's own source."""
    jars = fetch_spark_jars()
    if jars is None:
        print("  left out: Spark's Kafka source cannot be had without Maven")
        return []
    place = Path(tempfile.mkdtemp(prefix="millstream-loads-"))
    try:
        with Millstream() as broker:
            servers = broker.bootstrap_servers
            sections = [starts(servers, place)]
            spark = spark_session(jars, place)
            try:
                bench = Bench(spark, servers, place)
                sections += [bench.throughput(), bench.latency()]
                sections += load_growth.sections(spark, servers, place)
            finally:
                spark.stop()
        return sections
    finally:
        shutil.rmtree(place, ignore_errors=True)


class Bench:
    """One Spark, one broker, and jobs that load from the one with the other."""

    def __init__(self, spark: Any, servers: str, place: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._place = place

    # --- rows per second

    def throughput(self) -> Section:
        """Each job over the same topic, in turns, after each has run once over a small one."""
        jobs: dict[str, Callable[[str], int]] = {
            RAW: self._load,
            RAW_PEER: lambda topic: self._peer(topic, structured=False),
            JSON: lambda topic: self._load(topic, schema=SCHEMA, checks=CHECKS),
            JSON_PEER: lambda topic: self._peer(topic, structured=True),
        }
        small = fill(self._servers, max(RECORDS // 20, 1), PARTITIONS)
        print("  warming up")
        for job in jobs.values():
            job(small)
        print(f"  loading {RECORDS:,} records, rows/s")
        topic = fill(self._servers, RECORDS, PARTITIONS)
        found = alternate({name: self._timed(job, topic) for name, job in jobs.items()}, ROUNDS)
        delete(self._servers, small, topic)
        return Section("Loads: beside Spark's own Kafka source", self._told(found))

    def _told(self, found: dict[str, Measured]) -> str:
        rows = [(name, f"{one.median:,.0f} rows/s", one.spread) for name, one in found.items()]
        raw = found[RAW].median / found[RAW_PEER].median
        shaped = found[JSON].median / found[JSON_PEER].median
        return (
            f"{RECORDS:,} JSON records of {SIZE} bytes in {PARTITIONS} partitions of the embedded broker, "
            f"one Spark session of {CORES} cores for all, each job once over a twentieth of it before; then "
            f"in turns, medians of {ROUNDS} rounds. Ours commits rows and offsets to Delta and to the group; "
            "the other writes Parquet and remembers nothing.\n\n"
            + table(("job", "median", "all rounds"), rows)
            + f"\n\nraw: {ratio(raw, 1)} (wanted: 8x); JSON with a schema and two checks: {ratio(shaped, 1)} "
            "(wanted: 2x)"
        )

    def _timed(self, job: Callable[[str], int], topic: str) -> Callable[[], float]:
        def once() -> float:
            began = time.perf_counter()
            rows = job(topic)
            took = time.perf_counter() - began
            assert rows in (RECORDS, -1), f"{rows} rows instead of {RECORDS}"
            return RECORDS / took

        return once

    def _load(self, topic: str, **shaping: Any) -> int:
        with self._directory() as directory:
            report = Load(
                self._spark,
                topics=[topic],
                group_id=uuid.uuid4().hex,
                bootstrap_servers=self._servers,
                sink=DeltaSink(directory),
                **shaping,
            ).run_once()
        return report.loaded

    def _peer(self, topic: str, *, structured: bool) -> int:
        """The same with Spark's own means; how many rows it wrote nobody says."""
        with self._directory() as directory:
            frame = self._read("read", topic).load()
            if structured:
                frame = _structured(frame)
            frame.write.parquet(f"{directory}/table")
        return -1

    def _read(self, how: str, topic: str) -> Any:
        return (
            getattr(self._spark, how)
            .format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
        )

    @contextmanager
    def _directory(self) -> Iterator[str]:
        directory = tempfile.mkdtemp(dir=self._place)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    # --- latency of a micro-batch

    def latency(self) -> Section:
        """From the last acknowledgement of a thousand records until they are committed in the table."""
        print("  latency of micro-batches, ms")
        ours, theirs = self._latencies(self._stream), self._latencies(self._peer_stream)
        rows = [
            (name, f"{statistics.median(found):.0f} ms", f"{sorted(found)[int(len(found) * 0.9)]:.0f} ms")
            for name, found in (("millstream load, every=0", ours), ("Spark's kafka source, Parquet", theirs))
        ]
        for row in rows:
            print(f"    {row[0]}: {row[1]}")
        share = statistics.median(ours) / statistics.median(theirs)
        return Section(
            "Loads: latency of a micro-batch",
            f"{MICRO_BATCH:,} records of {SIZE} bytes are sent to one partition; the time from the last "
            f"acknowledgement until they are committed, {SAMPLES} times after five that do not count. The "
            "other is a structured stream with the default trigger.\n\n"
            + table(("job", "median", "90th percentile"), rows)
            + f"\n\nmillstream / Spark: {ratio(share, 1)} (wanted: at most 1x)",
        )

    def _latencies(self, stream: Callable[[str, str], Iterator[Callable[[int], None]]]) -> list[float]:
        topic = fill(self._servers, MICRO_BATCH, 1)
        found = []
        with self._directory() as directory, contextmanager(stream)(topic, directory) as wait:
            total = MICRO_BATCH
            wait(total)
            for _ in range(SAMPLES + 5):
                add(self._servers, topic, MICRO_BATCH, 1)
                began = time.perf_counter()
                total += MICRO_BATCH
                wait(total)
                found.append(1000 * (time.perf_counter() - began))
        delete(self._servers, topic)
        return found[5:]

    def _stream(self, topic: str, directory: str) -> Iterator[Callable[[int], None]]:
        changed = threading.Condition()
        rows = 0

        def observe(point: Point, detail: Detail) -> None:
            nonlocal rows
            if point is Point.SINK_COMMITTED:
                with changed:
                    rows += detail.rows
                    changed.notify_all()

        def wait(total: int) -> None:
            with changed:
                assert changed.wait_for(lambda: rows >= total, SECONDS), f"{rows} of {total} rows"

        load = Load(
            self._spark,
            topics=[topic],
            group_id=uuid.uuid4().hex,
            bootstrap_servers=self._servers,
            sink=DeltaSink(directory),
            observer=observe,
        )
        thread = threading.Thread(target=load.run, kwargs={"every": 0})
        thread.start()
        try:
            yield wait
        finally:
            load.stop()
            thread.join()

    def _peer_stream(self, topic: str, directory: str) -> Iterator[Callable[[int], None]]:
        query = (
            self._read("readStream", topic)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{directory}/checkpoint")
            .start(f"{directory}/table")
        )
        try:
            yield lambda _: query.processAllAvailable()
        finally:
            query.stop()


def _structured(frame: Any) -> Any:
    from pyspark.sql import functions

    parsed = functions.from_json(functions.col("value").cast("string"), SCHEMA).alias("row")
    rows = frame.select(parsed, "topic", "partition", "offset", "timestamp")
    return rows.select("row.*", "topic", "partition", "offset", "timestamp").where(" AND ".join(CHECKS))


# --- from the command to the first rows


def starts(servers: str, place: Path) -> Section:
    """``millstream load`` typed, until its first rows are committed: Java, Spark and all."""
    topic = fill(servers, 1_000, PARTITIONS)
    found = []
    print("  from the command to the first rows, s")
    for number in range(STARTS):
        directory = place / f"start-{number}"
        took = _start(servers, topic, directory)
        print(f"    {took:.2f}")
        found.append(took)
        shutil.rmtree(directory)
    delete(servers, topic)
    return Section(
        "Loads: from the command to the first rows",
        f"`millstream load TOPIC --group G --to delta:DIR --once` over {1_000:,} records, with Java and "
        f"Spark to start: **{statistics.median(found):.1f} s** until the commit that has them (median of "
        f"{STARTS}; the first one, {found[0]:.1f} s, may have had to compile).",
    )


def _start(servers: str, topic: str, directory: Path) -> float:
    arguments = ("load", topic, "--group", uuid.uuid4().hex, "--to", f"delta:{directory}", "--once")
    command = [sys.executable, "-m", "millstream", *arguments, "--bootstrap-servers", servers]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    took = 0.0
    while not took:
        if any('"add"' in log.read_text() for log in directory.glob("_delta_log/*.json")):
            took = time.perf_counter() - began
        elif time.perf_counter() - began > SECONDS or process.poll() not in (None, 0):
            process.kill()
            raise RuntimeError(f"no rows came: {' '.join(command)}")
        time.sleep(0.005)
    process.wait(SECONDS)
    return took
