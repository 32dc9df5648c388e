"""A range of a topic read once: ``scan`` beside ``poll_arrow`` and confluent-kafka, as bytes and as JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import confluent_kafka

from benchmarks.measure import alternate
from benchmarks.report import Section, ratio, table
from millstream import Admin, Consumer, EmbeddedBroker, Producer, TopicPartition, scan

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
PARTITIONS = 4
TOPIC = "scanned"
SCHEMA = "id LONG, price DOUBLE, customer STRING, country STRING"


def run() -> list[Section]:
    """Rows per second of whole reads, from the call to the last row."""
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        _fill(servers)
        raw: dict[str, Callable[[], int]] = {
            "scan": lambda: _scan(servers, value="bytes"),
            "poll_arrow": lambda: _poll_arrow(servers),
            "confluent-kafka": lambda: _confluent(servers, lambda value: value),
        }
        parsed: dict[str, Callable[[], int]] = {
            "scan": lambda: _scan(servers, value="json", schema=SCHEMA),
            "confluent-kafka": lambda: _confluent(servers, json.loads),
        }
        rows = [_row("bytes", raw), _row("JSON into four columns, or json.loads", parsed)]
    head = ("rows/s", *raw, "scan beside confluent-kafka")
    setting = (
        f"{ROWS:,} JSON values of about 90 B in {PARTITIONS} partitions of the embedded broker, from the "
        f"call to the last row, connecting included; compiled code is warm. confluent-kafka's "
        f"consume(10,000) makes lists of messages, scan and poll_arrow make Arrow batches. "
        f"In turns, medians of {ROUNDS}."
    )
    return [Section("Scan: a range without Spark", f"{setting}\n\n{table(head, rows)}")]


def _row(what: str, contestants: dict[str, Callable[[], int]]) -> tuple[str, ...]:
    print(f"  {what}")
    for work in contestants.values():
        work()  # warms up
    figures = alternate({name: _rate(work) for name, work in contestants.items()}, ROUNDS)
    names = ("scan", "poll_arrow", "confluent-kafka")
    cells = [
        f"{figures[name].median:,.0f} ({figures[name].spread})" if name in figures else "" for name in names
    ]
    return what, *cells, ratio(figures["scan"].median, figures["confluent-kafka"].median)


def _rate(work: Callable[[], int]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        rows = work()
        assert rows == ROWS, rows
        return rows / (time.perf_counter() - began)

    return measure


def _fill(servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    with Producer(bootstrap_servers=servers, batch_size=131_072, linger_ms=20) as producer:
        for number in range(ROWS):
            value = b'{"id": %d, "price": %d.25, "customer": "customer-%d", "country": "Norway"}' % (
                number,
                number % 1000,
                number % 5000,
            )
            producer.send(TOPIC, value, partition=number % PARTITIONS)


def _scan(servers: str, **options: str) -> int:
    made = scan(TOPIC, bootstrap_servers=servers, **options)  # type: ignore[arg-type]
    return sum(batch.num_rows for batch in made)


def _poll_arrow(servers: str) -> int:
    read = 0
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        while read < ROWS:
            read += consumer.poll_arrow(timeout=5.0).num_rows
    return read


def _confluent(servers: str, decode: Callable[[bytes], object]) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False}
    )
    places = [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    consumer.assign(places)
    read = 0
    try:
        while read < ROWS:
            for message in consumer.consume(10_000, timeout=5.0):
                decode(message.value() or b"")
                read += 1
    finally:
        consumer.close()
    return read
