"""``failOnDataLoss=false`` while topics are deleted and recreated: a stream goes on, and reads the rest."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from millstream import Admin, Producer
from millstream.errors import MillstreamTimeoutError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from millstream.spark.source.options import read_options
from millstream.spark.source.stream import StreamReader
from tests.waiting import until

TOPICS = 4


class Upheaval:
    """Deletes, recreates and fills topics that begin with ``prefix`` until it is stopped."""

    def __init__(self, servers: str, prefix: str, seed: int) -> None:
        self._servers = servers
        self._names = [f"{prefix}-{number}" for number in range(TOPICS)]
        self._chance = random.Random(seed)
        self._ending = threading.Event()
        self.changes = 0
        self.failure: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def settle(self) -> set[tuple[str, str]]:
        """End with every topic there, and a last record in each: returns those."""
        last = set()
        with (
            Admin(bootstrap_servers=self._servers) as admin,
            Producer(bootstrap_servers=self._servers) as out,
        ):
            for name in self._names:
                until(lambda name=name: self._exists(admin, name), f"{name} is there")  # type: ignore[misc]
                out.send(name, f"{name} last".encode(), partition=0).result()
                last.add((name, f"{name} last"))
        return last

    def _exists(self, admin: Admin, name: str) -> bool:
        try:
            admin.create_topic(name, partitions=1)
        except TopicAlreadyExistsError:
            return True
        return False

    def _run(self) -> None:
        try:
            with (
                Admin(bootstrap_servers=self._servers) as admin,
                Producer(
                    bootstrap_servers=self._servers,
                    delivery_timeout_ms=2_000,
                    request_timeout_ms=1_000,
                    max_block_ms=1_000,
                ) as producer,
            ):
                while not self._ending.is_set():
                    self._change(admin, producer, self._chance.choice(self._names))
                    self.changes += 1
        except Exception as error:  # noqa: BLE001 - for the test to raise
            self.failure = error

    def _change(self, admin: Admin, producer: Producer, name: str) -> None:
        try:
            if self._chance.random() < 0.4:
                admin.delete_topics(name)
            else:
                admin.create_topic(name, partitions=self._chance.randint(1, 2))
        except (TopicAlreadyExistsError, UnknownTopicOrPartitionError):
            pass
        if name in admin.list_topics():
            for number in range(self._chance.randint(0, 20)):
                with suppress(MillstreamTimeoutError):  # the producer has not heard of the new topic yet
                    producer.send(name, b"%d" % number, partition=0)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_survives_deletions(bootstrap_servers: str, seed: int) -> None:
    prefix = f"deleted-{uuid.uuid4().hex[:8]}"
    upheaval = Upheaval(bootstrap_servers, prefix, seed)
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "subscribePattern": prefix,
        "startingOffsets": "earliest",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "1000",
        "fetchOffset.retryIntervalMs": "10",
    }
    reader = StreamReader(read_options(options, streaming=True), ("topic", "value"))
    position = reader.initialOffset()
    found: set[tuple[str, str]] = set()

    def batch_then(done: Callable[[], object]) -> object:
        nonlocal position
        end = json.loads(json.dumps(reader.latestOffset(position, ReadAllAvailable())))
        for task in reader.partitions(position, end):
            for rows in reader.read(task):
                found.update((row["topic"], row["value"].decode()) for row in rows.to_pylist())
        reader.commit(end)
        position = end
        return done()

    try:
        with upheaval.running():
            until(lambda: batch_then(lambda: upheaval.changes > 60 or upheaval.failure), "enough has changed")
        if upheaval.failure is not None:
            raise upheaval.failure
        last = upheaval.settle()
        until(lambda: batch_then(lambda: last <= found), "what is left has been read")
    finally:
        reader.stop()
