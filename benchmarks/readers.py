"""One reader in a process of its own: ``python -m benchmarks.readers NAME SERVERS TOPIC RECORDS``.

Prints what it took as JSON. Each reads the topic's only partition from the start, alone, and touches key,
value and offset of each record (or has them as columns). A first consumer warms up for a while: imports,
connections, compiled code. The clock runs from the first records of the second one. The fastest read the
topic again and again, as their figures would mean little otherwise.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

Reader = Callable[[str, str], Iterator[int]]
"""Reads a topic of a broker without end; yields how many records came, again and again."""

WARM_UP_S = 1.0
MANY = 10_000
"""Records in one call, where a client lets its caller choose."""
NEAR_THE_END = 50_000
"""So many records before the topic's end it is read anew: a fetch at the very end waits there for more."""
TUNED = {
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 1,
    "queued.max.messages.kbytes": 1_048_576,
}


# --- millstream


def _millstream(servers: str, topic: str) -> Any:
    from millstream import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def poll_arrow(servers: str, topic: str) -> Iterator[int]:
    with _millstream(servers, topic) as consumer:
        (partition,) = consumer.assignment()
        while True:
            yield consumer.poll_arrow(timeout=1.0).num_rows
            lag = consumer.lag(partition)
            if lag is not None and lag < NEAR_THE_END:
                consumer.seek(partition, 0)


def poll(servers: str, topic: str) -> Iterator[int]:
    with _millstream(servers, topic) as consumer:
        while True:
            count = 0
            for record in consumer.poll(timeout=1.0):
                _ = record.key, record.value, record.offset
                count += 1
            yield count


def iterate(servers: str, topic: str) -> Iterator[int]:
    with _millstream(servers, topic) as consumer:
        count = 0
        for record in consumer:
            _ = record.key, record.value, record.offset
            count += 1
            if count == MANY:
                yield count
                count = 0


# --- its peers


def _confluent(servers: str, topic: str, settings: Mapping[str, object]) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def confluent_consume(settings: Mapping[str, object], servers: str, topic: str) -> Iterator[int]:
    consumer = _confluent(servers, topic, settings)
    try:
        while True:
            count = 0
            for message in consumer.consume(MANY, timeout=1.0):
                _ = message.key(), message.value(), message.offset()
                count += 1
            yield count
    finally:
        consumer.close()


def confluent_poll(settings: Mapping[str, object], servers: str, topic: str) -> Iterator[int]:
    consumer = _confluent(servers, topic, settings)
    try:
        while True:
            count = 0
            for _ in range(MANY):
                message = consumer.poll(1.0)
                if message is None:
                    break
                _ = message.key(), message.value(), message.offset()
                count += 1
            yield count
    finally:
        consumer.close()


def kafka_python(servers: str, topic: str) -> Iterator[int]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    try:
        while True:
            count = 0
            for records in consumer.poll(timeout_ms=1000, max_records=MANY).values():
                for record in records:
                    _ = record.key, record.value, record.offset
                    count += 1
            yield count
    finally:
        consumer.close()


def aiokafka(servers: str, topic: str) -> Iterator[int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def begin() -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0)])
        return consumer

    async def some(consumer: Any) -> int:
        count = 0
        for records in (await consumer.getmany(timeout_ms=1000, max_records=MANY)).values():
            for record in records:
                _ = record.key, record.value, record.offset
                count += 1
        return count

    with asyncio.Runner() as runner:
        consumer = runner.run(begin())
        try:
            while True:
                yield runner.run(some(consumer))
        finally:
            runner.run(consumer.stop())


# --- the limit: the same fetches, two under way, whose answers are dropped as they come


def raw(servers: str, topic: str) -> Iterator[int]:
    requests = list(_fetches(servers, topic))
    scratch = memoryview(bytearray(1 << 20))
    with _connect(servers) as sock:
        sock.sendall(requests[0][0])
        for (_, count), (following, _) in pairwise(cycle(requests)):
            sock.sendall(following)
            left = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            while left:
                left -= sock.recv_into(scratch, min(left, len(scratch)))
            yield count


def _connect(servers: str) -> socket.socket:
    host, _, port = servers.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _fetches(servers: str, topic: str) -> Iterator[tuple[bytes, int]]:
    """Each request that reading the topic takes, and how many records its answer holds."""
    from millstream.wire.frames import decode_response, encode_request
    from millstream.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from millstream.wire.records.batch_header import iter_headers

    offset, version = 0, 11
    with _connect(servers) as sock:
        while True:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=50 << 20,
                topics=[FetchTopic(topic=topic, partitions=[partition])],
            )
            sent = b"".join(encode_request(request, version, 1, "raw"))
            sock.sendall(sent)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            frame = memoryview(sock.recv(size, socket.MSG_WAITALL))
            answer: Any = decode_response(FetchRequest, version, frame)[1]
            records = answer.responses[0].partitions[0].records or b""
            headers = [header for _, header in iter_headers(records, allow_partial=True)]
            if not headers:
                return
            yield sent, headers[-1].next_offset - offset
            offset = headers[-1].next_offset


READERS: dict[str, Reader] = {
    "millstream poll_arrow": poll_arrow,
    "millstream poll": poll,
    "millstream iterate": iterate,
    "confluent-kafka consume, tuned": partial(confluent_consume, TUNED),
    "confluent-kafka consume": partial(confluent_consume, {}),
    "confluent-kafka poll, tuned": partial(confluent_poll, TUNED),
    "confluent-kafka poll": partial(confluent_poll, {}),
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "raw limit": raw,
}


def measure(reader: Reader, servers: str, topic: str, records: int) -> dict[str, float]:
    """Records a second, CPU seconds for a million of them, and the process's largest size."""
    warm_up(reader, servers, topic, records)
    reading = reader(servers, topic)
    first = next(count for count in reading if count)
    cpu, began = _cpu(), time.perf_counter()
    total = sum(_until(reading, lambda seen: seen >= records - first))
    seconds = time.perf_counter() - began
    return {
        "rate": total / seconds,
        "cpu": (_cpu() - cpu) / total * 1e6,
        "peak_mb": peak_mb(),
    }


def warm_up(reader: Reader, servers: str, topic: str, records: int) -> None:
    """Read for a while, and have everything that is loaded or compiled in the background."""
    warm_until = time.perf_counter() + WARM_UP_S
    for _ in _until(reader(servers, topic), lambda seen: seen >= records or time.perf_counter() > warm_until):
        pass
    if "millstream.consumer" in sys.modules:
        from millstream.consumer import compiled_decoder as compiling

        compiling.background.wait()


def _until(counts: Iterator[int], enough: Callable[[int], bool]) -> Iterator[int]:
    seen = 0
    for count in counts:
        yield count
        seen += count
        if enough(seen):
            return


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """As the kernel counts it since the program was started; getrusage's figure may be that of the parent."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Linux says it"
    return int(found[1]) / 1024


def main(name: str, servers: str, topic: str, records: str) -> None:
    if records == "first":
        next(count for count in READERS[name](servers, topic) if count)
    else:
        print(json.dumps(measure(READERS[name], servers, topic, int(records))))


if __name__ == "__main__":
    main(*sys.argv[1:])
