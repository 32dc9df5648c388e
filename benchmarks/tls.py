"""Reading and writing over TLS beside confluent-kafka, on Apache Kafka, with records of 100 B and 1 KiB."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import trustme

from benchmarks.measure import alternate
from benchmarks.peers import KAFKA, ApacheKafka, fetch_jars, free_port
from benchmarks.report import Section, ratio, table
from benchmarks.senders import BATCH_BYTES, LINGER_MS
from millstream import Consumer, Producer
from millstream.admin import Admin
from tests.kafka.secured import in_one_file

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SIZES = {100: 400_000, 1024: 100_000}
"""Records of each size in bytes."""
BATCHING = {"batch.size": BATCH_BYTES, "linger.ms": LINGER_MS}
OURS, THEIRS = "millstream", "confluent-kafka"


def run() -> list[Section]:
    """All measurements over TLS; none where Apache Kafka cannot run."""
    if not fetch_jars():
        return []
    with tempfile.TemporaryDirectory() as place:
        authority = trustme.CA()
        ca, store = Path(place, "ca.pem"), Path(place, "server.pem")
        authority.cert_pem.write_to_path(ca)
        store.write_bytes(in_one_file(authority.issue_cert("127.0.0.1")))
        port = free_port()
        kept = {"ssl.keystore.type": "PEM", "ssl.keystore.location": store}
        with ApacheKafka(kept, listeners={"TLS": (port, "SSL")}):
            secured = {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(ca),
            }
            return [_section(secured)]


def _section(secured: dict[str, Any]) -> Section:
    rows = []
    for size, count in SIZES.items():
        topic = f"tls-{uuid.uuid4().hex[:8]}"
        with Admin(secured) as admin:
            admin.create_topics({topic: 1})
        value = os.urandom(size)
        _send_ours(secured, topic, value, count)
        for what, ours, theirs in (
            ("read", _read_ours, _read_theirs),
            ("write", _send_ours, _send_theirs),
        ):
            print(f"  {what} {size} B")
            figures = alternate(
                {
                    OURS: _rate(ours, secured, topic, value, count),
                    THEIRS: _rate(theirs, secured, topic, value, count),
                },
                ROUNDS,
            )
            mine, other = figures[OURS], figures[THEIRS]
            cells = (f"{mine.median:,.0f} ({mine.spread})", f"{other.median:,.0f} ({other.spread})")
            rows.append((f"{what}, {size} B", *cells, ratio(mine.median, other.median)))
    text = table(("records/s over TLS", OURS, THEIRS, "ratio"), rows)
    setting = (
        f"One partition of {KAFKA}, TLS 1.3. Both producers are idempotent and send batches of "
        f"{BATCH_BYTES // 1024} KiB, linger {LINGER_MS} ms. In turns, medians of {ROUNDS}."
    )
    return Section("TLS", f"{setting}\n\n{text}")


def _rate(
    work: Callable[[dict[str, Any], str, bytes, int], None],
    secured: dict[str, Any],
    topic: str,
    value: bytes,
    count: int,
) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        work(secured, topic, value, count)
        return count / (time.perf_counter() - began)

    return measure


def _send_ours(secured: dict[str, Any], topic: str, value: bytes, count: int) -> None:
    with Producer({**secured, **BATCHING}) as producer:
        for _ in range(count):
            producer.send(topic, value)


def _send_theirs(secured: dict[str, Any], topic: str, value: bytes, count: int) -> None:
    limits = {"queue.buffering.max.messages": 1_000_000, "enable.idempotence": True}
    producer = confluent_kafka.Producer({**secured, **BATCHING, **limits})
    for _ in range(count):
        producer.produce(topic, value)
    producer.flush()


def _read_ours(secured: dict[str, Any], topic: str, value: bytes, count: int) -> None:
    with Consumer(secured) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        consumer.seek_to_beginning()
        read = 0
        while read < count:
            for record in consumer.poll(timeout=5, max_records=10_000):
                read += record.value is not None


def _read_theirs(secured: dict[str, Any], topic: str, value: bytes, count: int) -> None:
    consumer = confluent_kafka.Consumer({**secured, "group.id": "tls", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read = 0
    while read < count:
        for message in consumer.consume(10_000, timeout=5):
            read += message.value() is not None
    consumer.close()
