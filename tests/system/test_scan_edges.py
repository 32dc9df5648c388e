"""Scans at the edges: gaps and markers at the end, threads and sockets that are released, bounded memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import confluent_kafka
import psutil
import pyarrow as pa
import pytest

from millstream import Admin, EmbeddedBroker, Producer, scan
from millstream.errors import DataLostError, MillstreamTimeoutError
from millstream.scanning.scan import Scan
from millstream.spark.reading import reader
from tests.conftest import NewTopic
from tests.kafka.brokers import apache_kafka_address
from tests.waiting import SECONDS, until


def offsets(made: Scan) -> list[int]:
    found: list[int] = made.read_all()["offset"].to_pylist()
    return found


def scanning(but: Collection[threading.Thread] = ()) -> list[threading.Thread]:
    """The threads of scans, and of their consumers; ``but`` those of others in this process."""
    names = ("millstream-scan", "millstream-consumer")
    return [each for each in threading.enumerate() if each.name.startswith(names) and each not in but]


# -- what holds no record


def test_compaction_gaps_at_and_across_the_end(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50, "log.segment.bytes": 20_000, "log.retention.ms": -1}
    with (
        EmbeddedBroker(tmp_path, settings=settings) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        servers = broker.bootstrap_servers
        admin.create_topic("latest", partitions=1, configs={"cleanup.policy": "compact"})
        with Producer(bootstrap_servers=servers, batch_size=500) as producer:
            for number in range(3000):
                producer.send("latest", b"%d" % number, key=b"key-%d" % (number % 7))
        until(lambda: len(offsets(scan("latest", bootstrap_servers=servers))) < 1500, "the log is compacted")
        found = offsets(scan("latest", bootstrap_servers=servers))
        gap = next(n for n in range(3000) if n not in found)
        assert offsets(scan("latest", bootstrap_servers=servers, start=gap, end=gap + 1)) == []
        for end in (gap, gap + 1, 2500):
            kept = offsets(scan("latest", bootstrap_servers=servers, end=end))
            assert [n for n in found if n < end] == [n for n in kept if n in found]
            assert kept == sorted(set(kept)) and all(n < end for n in kept)


@pytest.fixture
def transactions() -> Iterator[tuple[str, str]]:
    """A topic of Apache Kafka: 0-2 committed, marker, 4-6 aborted, marker, and 8-10 not ended yet."""
    servers, topic = apache_kafka_address(), f"scanned-{uuid.uuid4().hex[:8]}"
    writer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic})
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=1)
        writer.init_transactions(SECONDS)
        for outcome in (writer.commit_transaction, writer.abort_transaction, None):
            writer.begin_transaction()
            for _ in range(3):
                writer.produce(topic, b"x", partition=0)
            assert writer.flush(SECONDS) == 0
            if outcome is not None:
                outcome(SECONDS)
        until(
            lambda: scan(topic, bootstrap_servers=servers).ranges[0].end == 11,
            "three times three, two markers",
        )
        yield servers, topic
        writer.abort_transaction(SECONDS)
        admin.delete_topics(topic)


def test_markers_and_open_transactions(transactions: tuple[str, str]) -> None:
    servers, topic = transactions
    assert offsets(scan(topic, bootstrap_servers=servers)) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    committed = scan(topic, bootstrap_servers=servers, isolation_level="read_committed")
    assert offsets(committed) == [0, 1, 2] and committed.ranges[0].end == 8, "it waits for no transaction"
    for end, expected in [(3, [0, 1, 2]), (4, [0, 1, 2]), (5, [0, 1, 2]), (8, [0, 1, 2])]:
        made = scan(topic, bootstrap_servers=servers, end=end, isolation_level="read_committed")
        assert offsets(made) == expected, end
    assert offsets(scan(topic, bootstrap_servers=servers, start=7, end=8)) == [], "only a marker"
    assert offsets(scan(topic, bootstrap_servers=servers, start=3, end=5)) == [4]


# -- threads, sockets, memory


def test_an_abandoned_read_ends_its_threads(
    bootstrap_servers: str, new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic(partitions=4)
    for number in range(400):
        producer.send(topic, bytes(20_000), partition=number % 4)
    producer.flush()
    gc.collect()  # what other tests left, so that it ends before this one counts
    others = scanning()
    sockets = len(psutil.Process().net_connections())
    made = scan(topic, bootstrap_servers=bootstrap_servers, threads=4, queued_max_bytes=1 << 20)
    reading = iter(made)
    next(reading)
    assert scanning(others), "they wait until there is room"
    del reading
    gc.collect()
    assert not scanning(others)
    stream = made.to_reader()
    stream.read_next_batch()
    del stream
    gc.collect()
    assert not scanning(others)
    with made:
        made.read_next_batch()
    assert not scanning(others)
    until(lambda: len(psutil.Process().net_connections()) <= sockets, "no socket is left open")


_MEASURED = """
import resource, sys
from millstream import scan
made = scan(sys.argv[1], bootstrap_servers=sys.argv[2], queued_max_bytes=int(sys.argv[3]), threads=2)
next(iter(made))  # loads all there is to load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = 0
for batch in made:
    rows += batch.num_rows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(rows, (peak - before) // 1024)
"""


def test_memory_is_bounded(bootstrap_servers: str, new_topic: NewTopic, producer: Producer) -> None:
    """200 MB in two partitions, with queues of 4 MB."""
    topic = new_topic(partitions=2)
    for number in range(2000):
        producer.send(topic, b"%d" % number * (100_000 // len(str(number))), partition=number % 2)
    producer.flush()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, topic, bootstrap_servers, str(4 << 20)],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS * 3,
    )
    rows, grown_mb = map(int, done.stdout.split())
    assert rows == 2000 and grown_mb < 90, done.stdout


def test_records_larger_than_all_queues(bootstrap_servers: str, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=6 << 20)
    with Producer(bootstrap_servers=bootstrap_servers, max_request_size=8 << 20) as large:
        for number in range(4):
            large.send(topic, bytes([number]) * (5 << 20)).result(SECONDS)
    rows = scan(topic, bootstrap_servers=bootstrap_servers, queued_max_bytes=1 << 20).read_all()
    assert [value.as_py()[:1] for value in rows["value"]] == [b"\0", b"\1", b"\2", b"\3"]


def test_many_partitions(bootstrap_servers: str, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic(partitions=200)
    for number in range(400):
        producer.send(topic, b"v", partition=number % 200)
    producer.flush()
    rows = scan(topic, bootstrap_servers=bootstrap_servers).read_all()
    assert sorted(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)) == [
        (partition, offset) for partition in range(200) for offset in range(2)
    ]


# -- what goes wrong meanwhile


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks lost counts as lost at once."""
    monkeypatch.setattr(reader, "_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(reader, "_PATIENCE_SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_deleted_meanwhile(
    bootstrap_servers: str, new_topic: NewTopic, producer: Producer, admin: Admin
) -> None:
    topic = new_topic()
    for _ in range(300):
        producer.send(topic, bytes(20_000))
    producer.flush()
    made = scan(topic, bootstrap_servers=bootstrap_servers, queued_max_bytes=1 << 20, batch_rows=10)
    reading = iter(made)
    next(reading)
    admin.delete_topics(topic)
    with pytest.raises(DataLostError, match="no longer exists"):
        list(reading)
    with pytest.raises(DataLostError, match="no longer exists"):
        made.read_all()


def test_a_broker_that_is_gone_meanwhile() -> None:
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with Producer(bootstrap_servers=servers) as producer:
            for _ in range(300):
                producer.send("orders", bytes(20_000))
        made = scan(
            "orders",
            bootstrap_servers=servers,
            queued_max_bytes=1 << 20,
            batch_rows=10,
            default_api_timeout_ms=2_000,
        )
        reading = iter(made)
        next(reading)
    with pytest.raises(MillstreamTimeoutError, match=r"nothing of orders-0 .* came for 2 seconds"):
        list(reading)
    made.close()


_WITHOUT_SPARK = """
import sys
for name in ("pyspark", "deltalake", "psycopg", "fastavro"):
    sys.modules[name] = None
from millstream import scan
print(scan(sys.argv[1], bootstrap_servers=sys.argv[2], value="json").read_all()["id"].to_pylist())
"""


def test_it_needs_no_spark(bootstrap_servers: str, new_topic: NewTopic, producer: Producer) -> None:
    topic = new_topic()
    producer.send(topic, b'{"id": 7}').result(SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPARK, topic, bootstrap_servers],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS * 3,
    )
    assert done.stdout == "[7]\n"


def test_the_stream_tells_its_errors(bootstrap_servers: str, new_topic: NewTopic, producer: Producer) -> None:
    import duckdb

    topic = new_topic()
    producer.send(topic, b"\xff").result(SECONDS)
    broken = scan(topic, bootstrap_servers=bootstrap_servers, value="string")
    with pytest.raises(pa.ArrowException, match=f"the value of {topic}-0 at offset 0"):
        pa.RecordBatchReader.from_stream(broken).read_all()
    with pytest.raises(Exception, match=f"the value of {topic}-0 at offset 0"):
        duckdb.sql("SELECT * FROM broken").fetchall()
