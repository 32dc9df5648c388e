"""One sender in a process of its own: ``python -m benchmarks.senders NAME SERVERS TOPIC RECORDS SIZE ACKS``.

Prints what it took as JSON. All batch alike (128 KiB, 5 ms, no compression). With acks=all they are
idempotent, as far as they can be; with acks=1 none is. The clock runs from the first record until the last
one is acknowledged, after a warm-up: imports, connections, compiled code.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

from benchmarks.readers import peak_mb

Send = Callable[[int], None]
"""Sends so many records, and returns when all are acknowledged."""

BATCH_BYTES = 128 * 1024
LINGER_MS = 5
ROWS = 10_000
"""Rows in one call of send_arrow."""
MANY = 1_000
"""After so many records confluent-kafka is asked to run its callbacks."""
ANY_PARTITION = -1
"""To confluent-kafka: the producer chooses."""
WARM_UP = 0.1
"""The part of the records that is sent before the clock runs."""


def values(size: int) -> list[bytes]:
    """Text that shrinks to about a half, as records do."""
    chance = random.Random(5)
    words = [chance.randbytes(4).hex() for _ in range(200)]
    texts = (" ".join(chance.choices(words, k=size // 9 + 1)) for _ in range(1000))
    return [text[:size].encode() for text in texts]


# --- millstream


@contextmanager
def millstream_producer(servers: str, acks: str) -> Iterator[Any]:
    from millstream import Producer
    from millstream.producer.compiled_encoder import background as background_encoder

    background_encoder.wait()
    with Producer(
        bootstrap_servers=servers,
        acks=acks,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        enable_idempotence=acks == "all",
    ) as producer:
        yield producer


@contextmanager
def send(servers: str, topic: str, size: int, acks: str) -> Iterator[Send]:
    with millstream_producer(servers, acks) as producer:

        def some(count: int) -> None:
            for value in islice(cycle(values(size)), count):
                producer.send(topic, value)
            producer.flush()
            assert not producer.metrics()["records_failed"]

        yield some


@contextmanager
def send_arrow(servers: str, topic: str, size: int, acks: str) -> Iterator[Send]:
    import pyarrow

    rows = pyarrow.record_batch({"value": pyarrow.array(list(islice(cycle(values(size)), ROWS)))})
    with millstream_producer(servers, acks) as producer:

        def some(count: int) -> None:
            sent = [producer.send_arrow(topic, rows) for _ in range(count // ROWS)]
            assert sum(future.result() for future in sent) == count

        yield some


# --- its peers


def confluent_producer(servers: str, acks: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": servers,
            "acks": acks,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "enable.idempotence": acks == "all",
            "queue.buffering.max.messages": 1_000_000,
        }
    )


@contextmanager
def confluent(servers: str, topic: str, size: int, acks: str) -> Iterator[Send]:
    producer = confluent_producer(servers, acks)

    def some(count: int) -> None:
        for value in islice(cycle(values(size)), count):
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        assert not producer.flush()

    yield some


@contextmanager
def confluent_delivered(
    servers: str, topic: str, size: int, acks: str, places: Sequence[int] = (ANY_PARTITION,)
) -> Iterator[Send]:
    """With a callback for each record, which is how it says whether one was written.

    Records go to the partitions ``places`` in turn.
    """
    producer = confluent_producer(servers, acks)
    delivered = failed = 0

    def on_delivery(error: Any, message: Any) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1

    def some(count: int) -> None:
        nonlocal delivered
        delivered = 0
        records = zip(islice(cycle(values(size)), count), cycle(places), strict=False)
        for number, (value, partition) in enumerate(records):
            while True:
                try:
                    producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % MANY:
                producer.poll(0)
        producer.flush()
        assert (delivered, failed) == (count, 0)

    yield some


@contextmanager
def kafka_python(servers: str, topic: str, size: int, acks: str) -> Iterator[Send]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers,
        acks=acks if acks == "all" else int(acks),
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        enable_idempotence=acks == "all",
    )

    def some(count: int) -> None:
        for value in islice(cycle(values(size)), count):
            producer.send(topic, value)
        producer.flush()

    yield some
    producer.close()


@contextmanager
def aiokafka(servers: str, topic: str, size: int, acks: str) -> Iterator[Send]:
    from aiokafka import AIOKafkaProducer

    async def begin() -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            acks=acks if acks == "all" else int(acks),
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            enable_idempotence=acks == "all",
        )
        await producer.start()
        return producer

    async def several(producer: Any, count: int) -> None:
        for value in islice(cycle(values(size)), count):
            await producer.send(topic, value)
        await producer.flush()

    with asyncio.Runner() as runner:
        producer = runner.run(begin())
        yield lambda count: runner.run(several(producer, count))
        runner.run(producer.stop())


SENDERS: dict[str, Callable[[str, str, int, str], Any]] = {
    "millstream send_arrow": send_arrow,
    "millstream send": send,
    "confluent-kafka produce": confluent,
    "confluent-kafka produce, on_delivery": confluent_delivered,
    "aiokafka send": aiokafka,
    "kafka-python send": kafka_python,
}


def measure(name: str, servers: str, topic: str, records: int, size: int, acks: str) -> dict[str, float]:
    """Records a second, CPU seconds for a million of them (all, and the caller's own), and the process's
    largest size.
    """
    with SENDERS[name](servers, topic, size, acks) as some:
        some(max(ROWS, int(records * WARM_UP) // ROWS * ROWS))
        cpu, thread, began = cpu_seconds(), time.thread_time(), time.perf_counter()
        some(records)
        seconds = time.perf_counter() - began
        return {
            "rate": records / seconds,
            "cpu": (cpu_seconds() - cpu) / records * 1e6,
            "thread": (time.thread_time() - thread) / records * 1e6,
            "peak_mb": peak_mb(),
        }


def cpu_seconds() -> float:
    """The processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(name: str, servers: str, topic: str, records: str, size: str, acks: str) -> None:
    print(json.dumps(measure(name, servers, topic, int(records), int(size), acks)))


if __name__ == "__main__":
    main(*sys.argv[1:])
