"""Tables into topics: each row a record, whichever encoder is at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import (
    BufferExhaustedError,
    ClosedError,
    MessageTooLargeError,
    MillstreamError,
    MisuseError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from millstream.producer import Producer
from millstream.producer.compiled_encoder import background as background_encoder
from millstream.producer.core.columns import encoder
from millstream.producer.core.partitioner import partition_for_key
from tests.system.producing import make_topic
from tests.system.proxy import proxied_broker
from tests.system.reading import read_topic
from tests.waiting import SECONDS, until

PARTITIONS = 3
NOW = 1_700_000_000_000
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    return make_topic(admin, PARTITIONS)


@pytest.fixture
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def compiled() -> None:
    assert background_encoder.wait(SECONDS) is not None


@pytest.fixture(params=["compiled", "plain"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs with the compiled encoder, and without."""
    assert background_encoder.wait(SECONDS) is not None
    if request.param == "plain":
        monkeypatch.setattr(encoder, "kernels", None)
    return str(request.param)


def numbers(count: int, **more: Any) -> pyarrow.RecordBatch:
    """Rows whose values are 0, 1, 2, ..."""
    return pyarrow.record_batch({"value": pyarrow.array([b"%d" % n for n in range(count)]), **more})


@pytest.mark.usefixtures("either")
def test_every_column(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    batch = pyarrow.record_batch(
        {
            "key": pyarrow.array([b"k", None, b"", b"k"], pyarrow.binary()),
            "value": pyarrow.array(["a", None, "ü", ""], pyarrow.string()),
            "partition": pyarrow.array([0, 0, 0, 0], pyarrow.int32()),
            "timestamp": pyarrow.array([1, None, 3, NOW], pyarrow.timestamp("ms")),
            "headers": pyarrow.array(
                [[{"key": "h", "value": b"1"}, {"key": "ü", "value": None}], None, [], []], HEADERS
            ),
        }
    )
    assert producer.send_arrow(topic, batch).result(SECONDS) == 4
    assert producer.send_arrow(topic, pyarrow.Table.from_batches([batch, batch])).result(SECONDS) == 8
    assert producer.send_arrow(topic, batch.slice(0, 0)).result(SECONDS) == 0
    assert producer.send_arrow(topic, batch.slice(2, 1)).result(SECONDS) == 1
    records = read_topic(bootstrap_servers, topic)[0]
    rows = [(b"k", b"a"), (None, None), (b"", "ü".encode()), (b"k", b"")]
    assert [(record.key, record.value) for record in records] == [*rows * 3, rows[2]]
    assert [record.timestamp for record in records][:4:2] == [1, 3]
    assert records[3].timestamp == NOW
    assert [list(record.headers) for record in records[:4]] == [[("h", b"1"), ("ü", None)], [], [], []]


@pytest.mark.usefixtures("either")
def test_rows_are_partitioned_as_records_are(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    """By the partition where there is one, else by the key, else anywhere; in their order."""
    keys = [None if n % 5 == 0 else b"key %d" % (n % 11) for n in range(5000)]
    given = [n % PARTITIONS if n % 7 == 0 else None for n in range(5000)]
    batch = numbers(5000, key=pyarrow.array(keys), partition=pyarrow.array(given, pyarrow.int64()))
    assert producer.send_arrow(topic, batch).result(SECONDS) == 5000
    partitions = read_topic(bootstrap_servers, topic)
    found = {int(record.value or b""): n for n, records in enumerate(partitions) for record in records}
    assert sorted(found) == list(range(5000))
    for n, (key, partition) in enumerate(zip(keys, given, strict=True)):
        if partition is not None:
            assert found[n] == partition
        elif key is not None:
            assert found[n] == partition_for_key(key, PARTITIONS)
    for records in partitions:
        rows = [int(record.value or b"") for record in records]
        assert rows == sorted(rows), "those without a key keep their place between the others"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_large_tables_in_order_with_every_codec(bootstrap_servers: str, admin: Admin, codec: str) -> None:
    name = make_topic(admin, 1)
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        future = producer.send_arrow(name, numbers(150_000))
        producer.flush(SECONDS)
        assert future.result(0) == 150_000
        assert producer.metrics()["records_delivered"] == 150_000
    (records,) = read_topic(bootstrap_servers, name)
    assert [record.value for record in records] == [b"%d" % n for n in range(150_000)]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.string(),
        pyarrow.large_string(),
        pyarrow.string_view(),
        pyarrow.large_binary(),
        pyarrow.binary_view(),
        pyarrow.binary(2),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    ],
    ids=str,
)
def test_binary_and_text_of_any_kind(
    producer: Producer, bootstrap_servers: str, topic: str, kind: Any
) -> None:
    values = pyarrow.array(["aa", None, "bb"]).cast(kind)
    batch = pyarrow.record_batch({"value": values, "partition": [0, 0, 0], "key": pyarrow.nulls(3)})
    assert producer.send_arrow(topic, batch.slice(1)).result(SECONDS) == 2
    assert [record.value for record in read_topic(bootstrap_servers, topic)[0]] == [None, b"bb"]


@pytest.mark.usefixtures("either")
def test_other_types_go_through_the_serializers(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers, value_serializer="json", key_serializer="long"
    ) as producer:
        batch = pyarrow.record_batch(
            {"key": [1, None], "value": pyarrow.array([{"a": 1}, None]), "partition": [0, 0]}
        )
        assert producer.send_arrow(topic, batch).result(SECONDS) == 2
        text = pyarrow.record_batch({"value": ["as it is"], "partition": [0]})
        assert producer.send_arrow(topic, text).result(SECONDS) == 1
        with pytest.raises(SerializationError, match="key"):
            producer.send_arrow(topic, pyarrow.record_batch({"key": [1.5]}))
    records = read_topic(bootstrap_servers, topic)[0]
    assert [(record.key, record.value) for record in records] == [
        (b"\0\0\0\0\0\0\0\1", b'{"a":1}'),
        (None, None),
        (None, b"as it is"),
    ]


@pytest.mark.usefixtures("either")
def test_what_is_wrong_is_said_at_once(producer: Producer, topic: str) -> None:
    with pytest.raises(MisuseError, match="they must be among"):
        producer.send_arrow(topic, pyarrow.record_batch({"amount": [1]}))
    with pytest.raises(MisuseError, match="partition has the type double"):
        producer.send_arrow(topic, numbers(1, partition=pyarrow.array([1.0])))
    with pytest.raises(MisuseError, match="milliseconds since 1970"):
        producer.send_arrow(topic, numbers(1, timestamp=pyarrow.array([-1])))
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send_arrow(topic, numbers(1, partition=pyarrow.array([PARTITIONS])))
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send_arrow(topic, numbers(1, partition=pyarrow.array([-1])))
    with pytest.raises(RecordTooLargeError, match="max_request_size"):
        producer.send_arrow(topic, pyarrow.record_batch({"value": [b"x" * 2_000_000]}))
    with pytest.raises(MisuseError, match="name"):
        producer.send_arrow(
            topic, numbers(1, headers=pyarrow.array([[(b"\xff", b"v")]], pyarrow.map_("binary", "binary")))
        )
    for odd in (pyarrow.array([[None]], HEADERS), pyarrow.array([[1, 2]]), pyarrow.array([[{"a": 1}]])):
        with pytest.raises(MisuseError, match="not a pair"):
            producer.send_arrow(topic, numbers(1, headers=odd))
    producer.close()
    with pytest.raises(ClosedError):
        producer.send_arrow(topic, numbers(1))


@pytest.mark.usefixtures("either")
def test_rows_and_records_keep_their_order(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    """Sent in turns by one thread to one partition."""
    for n in range(0, 300, 3):
        rows = pyarrow.record_batch({"value": [b"%d" % n, b"%d" % (n + 1)], "partition": [0, 0]})
        producer.send_arrow(topic, rows)
        producer.send(topic, b"%d" % (n + 2), partition=0)
    producer.flush(SECONDS)
    records = read_topic(bootstrap_servers, topic)[0]
    assert [record.value for record in records] == [b"%d" % n for n in range(300)]


@pytest.mark.usefixtures("compiled")
def test_small_calls_share_batches(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000
    ) as producer:
        rows = pyarrow.record_batch({"value": [b"v"], "partition": [0]})
        producer.send_arrow(topic, rows)
        producer.flush(SECONDS)  # Kafka may refuse the first for a while: the partition was just made
        before = producer.metrics()["batches_sent"]
        futures = [producer.send_arrow(topic, rows) for _ in range(200)]
        producer.flush(SECONDS)
        assert [future.result(0) for future in futures] == [1] * 200
        assert producer.metrics()["batches_sent"] - before <= 2


@pytest.mark.usefixtures("compiled")
def test_rows_of_batches_that_are_too_large_for_the_topic(bootstrap_servers: str, admin: Admin) -> None:
    name = make_topic(admin, 1, max_message_bytes=2000)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        assert producer.send_arrow(name, numbers(5000)).result(SECONDS) == 5000
        assert producer.metrics()["batch_splits"] > 0
        sizes = [10, 5000, 10]
        failing = producer.send_arrow(name, pyarrow.record_batch({"value": [b"x" * size for size in sizes]}))
        with pytest.raises(MessageTooLargeError):
            failing.result(SECONDS)
    (records,) = read_topic(bootstrap_servers, name)
    assert [record.value for record in records[:5000]] == [b"%d" % n for n in range(5000)]
    assert [len(record.value or b"") for record in records[5000:]] == [10, 10], "others are delivered"


@pytest.mark.usefixtures("compiled")
def test_calls_that_share_a_batch_have_their_own_outcomes(bootstrap_servers: str, admin: Admin) -> None:
    name = make_topic(admin, 1, max_message_bytes=2000)
    patient: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    with Producer(bootstrap_servers=bootstrap_servers, **patient) as producer:
        before = producer.send_arrow(name, numbers(25))
        failing = producer.send_arrow(name, pyarrow.record_batch({"value": [b"x" * 5000]}))
        behind = producer.send_arrow(name, numbers(10))
        producer.flush(SECONDS)
        assert (before.result(0), behind.result(0)) == (25, 10)
        with pytest.raises(MessageTooLargeError):
            failing.result(0)


@pytest.mark.usefixtures("compiled")
def test_the_memory_is_bounded(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=64 * 1024, batch_size=4096, linger_ms=10_000
    ) as producer:
        least, done = 64 * 1024, threading.Event()

        def watch() -> None:
            nonlocal least
            while not done.wait(0.001):
                least = min(least, int(producer.metrics()["buffer_free_bytes"]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        future = producer.send_arrow(topic, numbers(200_000))
        producer.flush(SECONDS)
        done.set()
        watcher.join(SECONDS)
        assert future.result(0) == 200_000
        assert least >= 0
        assert producer.metrics()["buffer_free_bytes"] == 64 * 1024


@pytest.mark.usefixtures("compiled")
def test_every_row_once_through_a_network_that_breaks(tmp_path: Path) -> None:
    with proxied_broker(tmp_path) as proxy:
        with Producer(
            bootstrap_servers=proxy.address,
            batch_size=500,
            buffer_memory=20_000,
            reconnect_backoff_ms=1,
            retry_backoff_ms=1,
        ) as producer:
            producer.send("t", b"first").result(SECONDS)
            futures = []

            def send_more() -> bool:
                """Until something was lost on the way: a network may break between two batches."""
                futures.append(producer.send_arrow("t", numbers(5000)))
                return bool(producer.metrics()["batch_retries"])

            with proxy.breaking():
                until(send_more, "a batch was sent again")
            assert [future.result(SECONDS) for future in futures] == [5000] * len(futures)
        (records,) = read_topic(proxy.address, "t")
    assert [record.value for record in records] == [
        b"first",
        *(b"%d" % n for _ in futures for n in range(5000)),
    ]


@pytest.mark.usefixtures("compiled")
def test_the_outcome_of_rows_that_are_never_delivered(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=40_000, max_block_ms=200
        )
        # It waits for the topic, which may take longer than that on a busy machine.
        until(lambda: producer.send("t", b"v").result(SECONDS), "a first record", or_error=MillstreamError)
        broker.kill()
        left = producer.send_arrow("t", numbers(10))
        with pytest.raises(BufferExhaustedError, match=r"max_block_ms \(200\)"):
            producer.send_arrow("t", numbers(100_000))
        producer.close(0.1)
        with pytest.raises(ClosedError, match="closed before"):
            left.result(0)


@pytest.mark.usefixtures("compiled")
def test_many_threads_share_a_producer(bootstrap_servers: str, topic: str) -> None:
    """Some send rows, some records, all to the same partition: each one's order is kept."""
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=2000) as producer:

        def rows(name: bytes) -> None:
            for n in range(0, 1000, 10):
                values = [b"%s %d" % (name, n + m) for m in range(10)]
                producer.send_arrow(topic, pyarrow.record_batch({"value": values, "partition": [0] * 10}))

        def records(name: bytes) -> None:
            for n in range(1000):
                producer.send(topic, b"%s %d" % (name, n), partition=0)

        work = [(rows, b"a"), (rows, b"b"), (records, b"c"), (records, b"d")]
        threads = [threading.Thread(target=target, args=(name,)) for target, name in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    seen: dict[bytes, list[int]] = {}
    for record in read_topic(bootstrap_servers, topic)[0]:
        name, n = (record.value or b"").split()
        seen.setdefault(name, []).append(int(n))
    assert seen == {name: list(range(1000)) for name in (b"a", b"b", b"c", b"d")}
