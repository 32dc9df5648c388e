"""SIGKILL under load, again and again: every acknowledged record is where the broker said it was."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from millstream.embedded import EmbeddedBroker
from tests.waiting import SECONDS, until

KILLS = 20
PARTITIONS = 3
TOPIC = "load"


class Load:
    """A producer on a thread of its own that notes what was acknowledged: (partition, offset) to value."""

    def __init__(self, servers: str, idempotent: bool) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed = 0
        self._idempotent = idempotent
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": idempotent,
                "linger.ms": 1,
                "compression.type": "lz4",
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(SECONDS) == 0, "not everything was answered for"

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d-%d" % (self._idempotent, number)
            try:
                self._producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if number % 20 == 0:
                self._stop.wait(0.002)  # a load, not a flood: the test is about crashes

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failed += 1
            return
        where = placed(message)
        assert where not in self.acknowledged, f"two records were acknowledged at {where}"
        self.acknowledged[where] = message.value() or b""


def placed(message: confluent_kafka.Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"num.partitions": PARTITIONS, "log.segment.bytes": 200_000}) as running:
        yield running


def read_all(servers: str) -> dict[tuple[int, int], bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "check.crcs": True, "auto.offset.reset": "error"}
    )
    partitions = [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    total = sum(consumer.get_watermark_offsets(partition, SECONDS)[1] for partition in partitions)
    consumer.assign(partitions)
    found: dict[tuple[int, int], bytes] = {}

    def read() -> bool:
        for message in consumer.consume(10_000, 1.0):
            assert message.error() is None, message.error()
            found[placed(message)] = message.value() or b""
        return len(found) >= total

    until(read, lambda: f"all {total} records, of which {len(found)} could be read")
    consumer.close()
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("idempotent", [True, False])
def test_no_acknowledged_record_is_lost(broker: EmbeddedBroker, idempotent: bool) -> None:
    rng = random.Random(4)
    with Load(broker.bootstrap_servers, idempotent) as load:
        for _ in range(KILLS // 2):
            before = len(load.acknowledged)
            until(lambda: len(load.acknowledged) > before, "more is acknowledged")  # noqa: B023
            time.sleep(rng.uniform(0, 0.25))
            broker.kill()
            broker.start()
    stored = read_all(broker.bootstrap_servers)
    assert len(load.acknowledged) > 1000
    assert load.failed == 0
    missing = {where: value for where, value in load.acknowledged.items() if stored.get(where) != value}
    assert not missing, (
        f"{len(missing)} acknowledged records are not where they were, as {next(iter(missing.items()))}"
    )
    if idempotent:
        values = list(stored.values())
        assert len(values) == len(set(values)), "a retry was stored twice"
