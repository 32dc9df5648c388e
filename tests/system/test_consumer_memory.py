"""Reading much: memory stays bounded by the settings, is used again, and fetching goes on meanwhile."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from millstream.consumer import Consumer
from millstream.consumer import compiled_decoder as compiling
from millstream.consumer.decoding.fields import Fields
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.waiting import SECONDS, until

VALUE = b"v" * 1000
BATCHES, ROWS = 300, 60
SIZE = BATCHES * ROWS * len(VALUE)


@pytest.fixture
def partition(new_topic: NewTopic, bootstrap_servers: str) -> TopicPartition:
    """About 18 MB in one partition."""
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=ROWS * 1100, linger_ms=50) as producer:
        sent = [producer.send(topic, VALUE, partition=0) for _ in range(BATCHES * ROWS)]
        producer.flush()
        assert sent[-1].result(SECONDS).offset == BATCHES * ROWS - 1
    return TopicPartition(topic, 0)


def consumer_of(servers: str, partition: TopicPartition, **settings: Any) -> Consumer:
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **settings)
    consumer.assign([partition])
    return consumer


def test_more_is_fetched_while_the_user_works(bootstrap_servers: str, partition: TopicPartition) -> None:
    """poll() has returned, and nobody is in it: what comes next arrives all the same."""
    # The limit is for what comes while this thread is kept from running: all of it, otherwise.
    limits = {"max_partition_fetch_bytes": 1 << 18, "queued_max_bytes": 1 << 20}
    with consumer_of(bootstrap_servers, partition, **limits) as consumer:
        rows = until(lambda: consumer.poll_arrow(0.1).num_rows, "the first records")
        for _ in range(3):
            until(lambda: consumer.metrics()["buffered_bytes"] > 1 << 17, "data that was fetched ahead")
            more = consumer.poll_arrow(0).num_rows
            assert more, "it is there without waiting"
            rows += more
        assert rows < BATCHES * ROWS, "there was more to come"


def test_more_is_fetched_while_there_is_something_to_decode(
    bootstrap_servers: str, partition: TopicPartition
) -> None:
    size = 1 << 18
    with consumer_of(bootstrap_servers, partition, max_partition_fetch_bytes=size) as consumer:
        assert until(lambda: consumer.poll(0.1, max_records=1), "a first record")
        until(lambda: consumer.metrics()["buffered_bytes"] > 1.5 * size, "a second fetch beside the first")


@pytest.mark.parametrize("limit", [1 << 20, 4 << 20])
def test_what_waits_never_exceeds_the_limit(
    bootstrap_servers: str, partition: TopicPartition, limit: int
) -> None:
    """However slowly it is taken, and however much one fetch might bring."""
    highest = 0
    with consumer_of(
        bootstrap_servers, partition, queued_max_bytes=limit, max_partition_fetch_bytes=8 << 20
    ) as consumer:
        seen = 0
        while seen < BATCHES * ROWS:
            seen += len(consumer.poll(SECONDS, max_records=100))
            highest = max(highest, int(consumer.metrics()["buffered_bytes"]))
        assert limit // 4 < highest <= limit


def test_the_memory_of_fetches_is_used_again(bootstrap_servers: str, partition: TopicPartition) -> None:
    """As soon as nothing of it is left: a few pieces serve for all fetches."""
    assert compiling.background.wait(SECONDS) is not None
    places = []
    # The limit is for what comes while this thread is kept from running: fetches wait then, each in its own.
    limits = {"max_partition_fetch_bytes": 1 << 19, "queued_max_bytes": 1 << 21}
    with consumer_of(bootstrap_servers, partition, **limits) as consumer:
        seen = 0
        while seen < BATCHES * ROWS:
            records = consumer.poll(SECONDS, max_records=100_000)
            seen += len(records)
            for column in (part.values for part in records.columns):
                assert isinstance(column, Fields)
                places.append(column.data.ctypes.data)
    assert len(places) > 20
    assert len(set(places)) < len(places) / 3


def test_records_that_are_kept_stay_as_they_are(bootstrap_servers: str, partition: TopicPartition) -> None:
    """Their memory is not used again while they are there."""
    with consumer_of(bootstrap_servers, partition, max_partition_fetch_bytes=1 << 19) as consumer:
        kept, seen = [], 0
        while seen < BATCHES * ROWS:
            records = consumer.poll(SECONDS, max_records=100_000)
            seen += len(records)
            kept.append(records)
    offsets = [record.offset for records in kept for record in records]
    assert offsets == list(range(BATCHES * ROWS))
    assert all(record.value == VALUE for records in kept for record in records)


def test_a_process_that_reads_a_topic_stays_small(bootstrap_servers: str, partition: TopicPartition) -> None:
    """The topic many times over, with a limit of 4 MiB, grows it by what waits and is read."""
    program = f"""
import re
from pathlib import Path
from millstream import Consumer, TopicPartition
from millstream.consumer import compiled_decoder as compiling
assert compiling.background.wait() is not None

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

where = TopicPartition({partition.topic!r}, 0)
settings = {{"queued_max_bytes": 4 << 20, "max_partition_fetch_bytes": 1 << 20}}
with Consumer(bootstrap_servers={bootstrap_servers!r}, auto_offset_reset="earliest", **settings) as consumer:
    consumer.assign([where])
    consumer.poll_arrow(30)
    before = peak()
    for _ in range(8):
        consumer.seek_to_beginning(where)
        while consumer.position(where) < {BATCHES * ROWS}:
            consumer.poll_arrow(30)
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert int(done.stdout) < 32 << 20 < 8 * SIZE
