"""The producer against the embedded broker: what is sent is there, once and in order, whatever happens."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.embedded import EmbeddedBroker
from millstream.errors import (
    BufferExhaustedError,
    ClosedError,
    InvalidTopicError,
    MessageTooLargeError,
    MillstreamTimeoutError,
    MisuseError,
    NoBrokersAvailableError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from millstream.model import RecordMetadata
from millstream.producer import Producer
from tests.system.proxy import Proxy
from tests.system.reading import read_topic

SECONDS = 30.0


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: Admin) -> str:
    return new_topic(admin, 3)


def new_topic(admin: Admin, partitions: int, **configs: object) -> str:
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin.create_topic(
        name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
    )
    return name


@pytest.fixture
def producer(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.005)


# -- records


def test_a_record_comes_back_as_it_was_sent(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    headers = [("trace", b"1"), ("trace", b"2"), ("null", None), ("ключ", b"")]
    sent = producer.send(topic, b"value", b"key", headers=headers, partition=1, timestamp=1_700_000_000_123)
    assert sent.result(SECONDS) == RecordMetadata(topic, 1, 0, 1_700_000_000_123)
    (record,) = read_topic(bootstrap_servers, topic)[1]
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_123)
    assert list(record.headers) == headers


def test_nulls_and_empty_things(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    for value, key in ((None, b"tombstone"), (b"", b""), (b"v", None), (None, None)):
        producer.send(topic, value, key, partition=0)
    producer.flush(SECONDS)
    records = read_topic(bootstrap_servers, topic)[0]
    assert [(record.value, record.key) for record in records] == [
        (None, b"tombstone"),
        (b"", b""),
        (b"v", None),
        (None, None),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_order_within_a_partition(bootstrap_servers: str, topic: str, codec: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, compression_type=codec) as producer:
        futures = [producer.send(topic, b"value %d" % n, b"%d" % (n % 7)) for n in range(5000)]
    assert all(future.exception(0) is None for future in futures)
    partitions = read_topic(bootstrap_servers, topic)
    assert sum(map(len, partitions)) == 5000
    for records in partitions:
        numbers = [int((record.value or b"").split()[1]) for record in records]
        assert numbers == sorted(numbers)
    for n, future in enumerate(futures):
        placed = future.result(0)
        assert partitions[placed.partition][placed.offset].value == b"value %d" % n


def test_compression_levels(bootstrap_servers: str, topic: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "compression.type": "gzip",
        "compression.gzip.level": 9,
    }
    with Producer(settings) as producer:
        producer.send(topic, b"x" * 10_000).result(SECONDS)
        assert producer.metrics()["batch_bytes"] < 1000


def test_keys_go_where_javas_producer_puts_them(producer: Producer, admin: Admin) -> None:
    topic = new_topic(admin, 7)
    for key, partition in ((b"foobar", 0), (b"a", 5), (b"abc", 4), (b"key-123456789", 3)):
        assert producer.send(topic, b"v", key).result(SECONDS).partition == partition


def test_records_without_keys_spread_over_all_partitions(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=1000) as producer:
        for n in range(2000):
            producer.send(topic, b"%0100d" % n)
    assert all(len(records) > 100 for records in read_topic(bootstrap_servers, topic))


def test_timestamps_are_now_or_the_brokers(producer: Producer, admin: Admin) -> None:
    before = int(time.time() * 1000)
    ours = producer.send(new_topic(admin, 1), b"v").result(SECONDS)
    theirs = producer.send(
        new_topic(admin, 1, message_timestamp_type="LogAppendTime"), b"v", timestamp=1
    ).result(SECONDS)
    after = int(time.time() * 1000)
    assert before <= ours.timestamp <= after
    assert before <= theirs.timestamp <= after


def test_serializers(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers,
        key_serializer="long",
        value_serializer=lambda value: value.upper().encode(),
    ) as producer:
        producer.send(topic, "text", 1, partition=0).result(SECONDS)
        with pytest.raises(SerializationError, match=f"the key of a record for {topic}"):
            producer.send(topic, "text", "no number")
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer="json") as producer:
        producer.send(topic, {"a": [1, None]}, partition=0).result(SECONDS)
    first, second = read_topic(bootstrap_servers, topic)[0]
    assert (first.key, first.value) == (b"\0\0\0\0\0\0\0\1", b"TEXT")
    assert second.value == b'{"a":[1,null]}'


def test_bytes_are_what_is_sent_without_a_serializer(
    producer: Producer, bootstrap_servers: str, topic: str
) -> None:
    with pytest.raises(SerializationError, match="'string'"):
        producer.send(topic, "text")
    producer.send(topic, bytearray(b"a"), memoryview(b"b"), partition=0).result(SECONDS)
    (record,) = read_topic(bootstrap_servers, topic)[0]
    assert (record.value, record.key) == (b"a", b"b")


@pytest.mark.parametrize("headers", [[("a", "text")], [(b"a", b"b")], [("a",)], "ab"])
def test_wrong_headers_are_refused_at_once(producer: Producer, topic: str, headers: Any) -> None:
    with pytest.raises(SerializationError, match="header"):
        producer.send(topic, b"v", headers=headers)


def test_wrong_timestamps_and_topics_are_refused_at_once(producer: Producer, topic: str) -> None:
    for timestamp in (-1, 1.5, datetime.now(UTC)):
        with pytest.raises(MisuseError, match="milliseconds since 1970"):
            producer.send(topic, b"v", timestamp=timestamp)  # type: ignore[arg-type]
    for name in ("", None, 5):
        with pytest.raises(MisuseError, match="not the name of a topic"):
            producer.send(name, b"v")  # type: ignore[arg-type]


# -- topics


def test_a_new_topic_is_made_by_sending(producer: Producer, bootstrap_servers: str) -> None:
    name = f"auto-{uuid.uuid4().hex[:10]}"
    assert producer.send(name, b"v").result(SECONDS).offset == 0
    assert sum(map(len, read_topic(bootstrap_servers, name))) == 1


def test_illegal_topics_and_unknown_partitions(producer: Producer, topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        producer.send("no/such*name", b"v")
    with pytest.raises(UnknownTopicOrPartitionError, match="has the partitions 0 to 2, not 3"):
        producer.send(topic, b"v", partition=3)
    with pytest.raises(UnknownTopicOrPartitionError, match="not -1"):
        producer.send(topic, b"v", partition=-1)


def test_an_unknown_topic_is_waited_for() -> None:
    with EmbeddedBroker(settings={"auto.create.topics.enable": "false"}) as broker:
        servers = broker.bootstrap_servers
        impatient = Producer(bootstrap_servers=servers, max_block_ms=300)
        with pytest.raises(UnknownTopicOrPartitionError, match=r"max_block_ms \(300\)"):
            impatient.send("later", b"v")
        impatient.close()
        with Producer(bootstrap_servers=servers) as producer, Admin(bootstrap_servers=servers) as admin:
            timer = threading.Timer(0.3, admin.create_topic, ("later",))
            timer.start()
            assert producer.send("later", b"v").result(SECONDS).offset == 0
            timer.join()


def test_topics_grow_under_the_producer(admin: Admin, bootstrap_servers: str) -> None:
    name = new_topic(admin, 1)
    with Producer(bootstrap_servers=bootstrap_servers, metadata_max_age_ms=100) as producer:
        assert [one.partition for one in producer.partitions_for(name)] == [0]
        producer.send(name, b"v").result(SECONDS)
        admin.create_partitions(name, 4)
        assert producer.send(name, b"v", partition=3).result(SECONDS).partition == 3
        eventually(lambda: len(producer.partitions_for(name)) == 4, "the producer sees four partitions")


def test_partitions_for(producer: Producer, topic: str) -> None:
    found = producer.partitions_for(topic)
    assert [(one.topic, one.partition) for one in found] == [(topic, 0), (topic, 1), (topic, 2)]
    assert all(one.leader is not None and one.replicas for one in found)


# -- limits


def test_records_that_are_too_large(producer: Producer, admin: Admin) -> None:
    with pytest.raises(RecordTooLargeError, match=r"max_request_size \(1048576\)"):
        producer.send("any", b"x" * 1_048_577)
    name = new_topic(admin, 1, max_message_bytes=2000)
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
        producer.send(name, b"x" * 5000).result(SECONDS)


def test_batches_that_are_too_large_are_split_in_order(bootstrap_servers: str, admin: Admin) -> None:
    name = new_topic(admin, 1, max_message_bytes=2000)
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1000) as producer:
        futures = [producer.send(name, b"%0100d" % n) for n in range(100)]
        producer.flush(SECONDS)
        assert [future.result(0).offset for future in futures] == list(range(100))
        assert producer.metrics()["batch_splits"] > 0
    (records,) = read_topic(bootstrap_servers, name)
    assert [record.value for record in records] == [b"%0100d" % n for n in range(100)]


def test_a_full_buffer_holds_senders_up_until_there_is_room(bootstrap_servers: str, topic: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=64 * 1024, batch_size=4096, linger_ms=10_000
    ) as producer:
        futures = [producer.send(topic, b"x" * 1000) for _ in range(2000)]
        producer.flush(SECONDS)
        assert all(future.exception(0) is None for future in futures)
        assert producer.metrics()["buffer_free_bytes"] == 64 * 1024


def test_a_full_buffer_gives_up_in_time() -> None:
    with (
        Proxy() as proxy,
        EmbeddedBroker(settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker,
    ):
        proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{proxy.port}",
            buffer_memory=20_000,
            batch_size=10_000,
            max_block_ms=200,
            request_timeout_ms=1000,
        )
        producer.send("t", b"v").result(SECONDS)
        broker.kill()

        def send_much() -> None:
            for _ in range(100):
                producer.send("t", b"x" * 1000)

        with pytest.raises(BufferExhaustedError, match=r"max_block_ms \(200\).*buffer_memory"):
            send_much()
        producer.close(0.1)


def test_linger_zero_is_prompt_and_batches_of_nothing_work(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0, batch_size=0) as producer:
        for n in range(50):
            assert producer.send(topic, b"v", partition=0).result(SECONDS).offset == n


def test_max_block_without_any_broker() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=200)
    with pytest.raises(NoBrokersAvailableError, match=r"no broker answered at 127\.0\.0\.1:1"):
        producer.send("t", b"v")
    producer.close()


# -- acknowledgements


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap_servers: str, topic: str, acks: object) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, acks=acks) as producer:
        placed = [producer.send(topic, b"%d" % n, partition=0).result(SECONDS) for n in range(10)]
    assert [one.offset for one in placed] == ([-1] * 10 if acks == 0 else list(range(10)))
    assert len(read_topic(bootstrap_servers, topic)[0]) == 10


def test_without_idempotence_no_id_is_asked_for(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, enable_idempotence=False) as producer:
        producer.send(topic, b"v").result(SECONDS)
        assert "request_latency_ms.InitProducerId.count" not in producer.metrics()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, b"v").result(SECONDS)
        assert producer.metrics()["request_latency_ms.InitProducerId.count"] >= 1


def test_delivery_times_out(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        producer = Producer(
            bootstrap_servers=broker.bootstrap_servers,
            request_timeout_ms=200,
            delivery_timeout_ms=500,
            linger_ms=0,
        )
        producer.send("t", b"v").result(SECONDS)
        broker.kill()
        with pytest.raises(MillstreamTimeoutError, match=r"1 record for t-0 could not be delivered.*\(500\)"):
            producer.send("t", b"v").result(SECONDS)
        # It recovers by itself once the broker is back.
        broker.start()
        eventually(
            lambda: producer.send("t", b"again").exception(SECONDS) is None, "the producer has recovered"
        )
        producer.close(SECONDS)
        values = [record.value for record in read_topic(broker.bootstrap_servers, "t")[0]]
    assert values[0] == b"v"
    assert values[-1] == b"again"


# -- trouble


def test_every_record_once_through_a_network_that_breaks(tmp_path: Path) -> None:
    with (
        Proxy() as proxy,
        EmbeddedBroker(
            data=tmp_path, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        ) as broker,
    ):
        proxy.target = int(broker.bootstrap_servers.rpartition(":")[2])
        stop = threading.Event()

        def trouble() -> None:
            while not stop.wait(0.03):
                proxy.cut()

        with Producer(
            bootstrap_servers=f"127.0.0.1:{proxy.port}",
            batch_size=500,
            linger_ms=1,
            reconnect_backoff_ms=1,
            retry_backoff_ms=1,
        ) as producer:
            producer.send("t", b"first").result(SECONDS)
            cutter = threading.Thread(target=trouble)
            cutter.start()
            futures = [producer.send("t", b"%d" % n) for n in range(3000)]
            stop.wait(0.5)
            futures += [producer.send("t", b"%d" % n) for n in range(3000, 6000)]
            with contextlib.suppress(MillstreamTimeoutError):
                producer.flush(5)
            stop.set()
            cutter.join()
            producer.flush(SECONDS)
            assert producer.metrics()["batch_retries"] > 0
        (records,) = read_topic(f"127.0.0.1:{proxy.port}", "t")
    assert [record.value for record in records] == [b"first", *(b"%d" % n for n in range(6000))]
    offsets = [future.result(0).offset for future in futures]
    # A broker that recognises a batch without remembering its place gives no offset, and rightly so.
    assert all(offset in (-1, n + 1) for n, offset in enumerate(offsets))


def test_every_record_once_over_crashes_of_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        servers = broker.bootstrap_servers
        futures = []
        with Producer(
            bootstrap_servers=servers, batch_size=2000, linger_ms=1, retry_backoff_ms=10
        ) as producer:
            producer.send("t", b"first").result(SECONDS)
            for crash in range(3):
                futures += [producer.send("t", b"%d" % n) for n in range(crash * 2000, crash * 2000 + 2000)]
                broker.kill()
                broker.start()
            producer.flush(SECONDS)
        (records,) = read_topic(servers, "t")
    assert [record.value for record in records] == [b"first", *(b"%d" % n for n in range(6000))]
    assert all(future.exception(0) is None for future in futures)


def test_records_deleted_under_an_idempotent_producer(producer: Producer, admin: Admin) -> None:
    name = new_topic(admin, 1)
    for n in range(3):
        producer.send(name, b"%d" % n).result(SECONDS)
    admin.delete_records({(name, 0): -1})  # type: ignore[dict-item]
    assert producer.send(name, b"after").result(SECONDS).offset == 3


def test_a_topic_made_anew_under_the_producer(producer: Producer, admin: Admin) -> None:
    name = new_topic(admin, 1)
    for n in range(5):
        producer.send(name, b"%d" % n).result(SECONDS)
    admin.delete_topics(name)
    admin.create_topic(name, 1)
    assert producer.send(name, b"anew").result(SECONDS).offset == 0


# -- threads, futures, the end


def test_many_threads_share_a_producer(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=1000) as producer:

        def work(number: int) -> None:
            for n in range(500):
                producer.send(topic, b"%d %d" % (number, n), b"%d" % number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    seen: dict[int, list[int]] = {}
    for records in read_topic(bootstrap_servers, topic):
        for record in records:
            number, n = map(int, (record.value or b"").split())
            seen.setdefault(number, []).append(n)
    assert seen == {number: list(range(500)) for number in range(8)}


def test_futures_work_with_the_library_and_asyncio(producer: Producer, topic: str) -> None:
    futures = [producer.send(topic, b"v") for _ in range(100)]
    assert concurrent.futures.wait(futures, SECONDS).done == set(futures)

    async def send() -> RecordMetadata:
        return await asyncio.wrap_future(producer.send(topic, b"v", partition=0))

    assert asyncio.run(send()).partition == 0


def test_callbacks_may_send_but_not_wait(producer: Producer, topic: str) -> None:
    outcomes: list[Any] = []
    finished = threading.Event()

    def callback(future: object) -> None:
        outcomes.append(producer.send(topic, b"from a callback"))
        for wait in (producer.flush, lambda: producer.send("unknown-topic-in-callback", b"v")):
            try:
                wait()
            except MisuseError as error:
                outcomes.append(error)
        finished.set()

    producer.send(topic, b"v").add_done_callback(callback)
    assert finished.wait(SECONDS)
    assert outcomes[0].result(SECONDS).topic == topic
    assert len(outcomes) == 3


def test_flush_waits_for_all_and_close_delivers(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(topic, b"v")
    producer.flush(SECONDS)
    assert future.done()
    last = producer.send(topic, b"v")
    producer.close()
    assert last.result(0).offset >= 0
    producer.close()
    for use in (lambda: producer.send(topic, b"v"), producer.flush, lambda: producer.partitions_for(topic)):
        with pytest.raises(ClosedError):
            use()


def test_close_in_time_fails_what_is_left(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        producer.send("t", b"v").result(SECONDS)
        broker.kill()
        future = producer.send("t", b"v")
        with pytest.raises(MillstreamTimeoutError, match="1 records were not delivered"):
            producer.flush(0.1)
        producer.close(0.2)
        with pytest.raises(ClosedError, match="closed before the record was delivered"):
            future.result(0)


def test_closing_in_a_callback(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, b"v").add_done_callback(lambda future: producer.close())
    eventually(lambda: not producer._io._thread.is_alive(), "the thread has ended")


def test_a_forgotten_producer_delivers_and_ends(bootstrap_servers: str, topic: str) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=200)
    thread = producer._io._thread
    future = producer.send(topic, b"v")
    del producer
    gc.collect()
    assert future.result(SECONDS).offset >= 0
    eventually(lambda: not thread.is_alive(), "the thread has ended")


def test_the_end_of_the_interpreter_delivers_but_does_not_hang(bootstrap_servers: str, topic: str) -> None:
    program = f"""
from millstream.producer import Producer
producer = Producer(bootstrap_servers="{bootstrap_servers}", linger_ms=60000, delivery_timeout_ms=120000)
producer.send("{topic}", b"never closed", partition=0)
"""
    subprocess.run([sys.executable, "-c", program], timeout=30, check=True)
    (record,) = read_topic(bootstrap_servers, topic)[0]
    assert record.value == b"never closed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own(producer: Producer, topic: str) -> None:
    producer.send(topic, b"v", partition=0).result(SECONDS)
    pending = producer.send(topic, b"v", partition=0)
    child = os.fork()
    if child == 0:
        code = 0
        for use in (lambda: producer.send(topic, b"v"), producer.flush):
            try:
                use()
                code = 1
            except MisuseError:
                continue
        try:
            pending.result(1)
        except MisuseError:
            producer.close()
            os._exit(code)
        os._exit(3 if not pending.done() else code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert producer.send(topic, b"v", partition=0).result(SECONDS).offset == 2


def test_metrics(producer: Producer, topic: str) -> None:
    producer.send(topic, b"v").result(SECONDS)
    metrics = producer.metrics()
    assert metrics["records_delivered"] == 1
    assert metrics["batches_sent"] == 1
    assert metrics["bytes_sent"] > metrics["batch_bytes"] > 0
    assert metrics["request_latency_ms.Produce.count"] == 1


# -- Arrow


def test_send_arrow(producer: Producer, bootstrap_servers: str, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    batch = pyarrow.record_batch(
        {
            "key": pyarrow.array([b"k", None, b"k"], pyarrow.binary()),
            "value": pyarrow.array(["a", None, "c"], pyarrow.string()),
            "partition": pyarrow.array([0, 0, 0], pyarrow.int32()),
            "timestamp": pyarrow.array([1, None, 3], pyarrow.timestamp("ms")),
            "headers": pyarrow.array(
                [[{"key": "h", "value": b"1"}], None, []],
                pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])),
            ),
        }
    )
    assert producer.send_arrow(topic, batch).result(SECONDS) == 3
    assert producer.send_arrow(topic, pyarrow.Table.from_batches([batch])).result(SECONDS) == 3
    assert producer.send_arrow(topic, batch.slice(0, 0)).result(SECONDS) == 0
    records = read_topic(bootstrap_servers, topic)[0][:3]
    assert [(record.key, record.value) for record in records] == [(b"k", b"a"), (None, None), (b"k", b"c")]
    assert [record.timestamp for record in records][::2] == [1, 3]
    assert [list(record.headers) for record in records] == [[("h", b"1")], [], []]
    with pytest.raises(MisuseError, match="they must be among"):
        producer.send_arrow(topic, pyarrow.record_batch({"amount": [1]}))
