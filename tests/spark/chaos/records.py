"""The records of these tests, and whether a table holds exactly what a topic does."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Protocol

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.sinks.base import Sink

SHAPE: dict[str, Any] = {"schema": "id LONG, price DOUBLE", "checks": ["price > 0"]}
"""What the loads make of them."""

Found = list[tuple[int, int, str]]


class Readable(Protocol):
    """Tables that can be looked at."""

    def sink(self) -> Sink: ...

    def rows(self) -> list[dict[str, Any]]: ...

    def rejected(self) -> list[dict[str, Any]]: ...


def value(number: int) -> bytes:
    """The value of a record: one in seven is no JSON, one in five is too cheap."""
    if number % 7 == 3:
        return b"not json %d" % number
    return json.dumps({"id": number, "price": -1.0 if number % 5 == 2 else 1.5}).encode()


def is_good(number: int) -> bool:
    return number % 7 != 3 and number % 5 != 2


def send(producer: Producer, topic: str, partition: int, first: int, last: int) -> None:
    for number in range(first, last):
        producer.send(topic, value(number), partition=partition)
    producer.flush()


def in_topic(servers: str, topic: str) -> Found:
    """All records that the topic holds, as (partition, offset, value)."""
    found: Found = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(one) < end for one, end in ends.items()):
            for record in consumer.poll(0.5):
                found.append((record.partition, record.offset, bytes(record.value).decode()))
    return sorted(found)


def in_place(place: Readable) -> Found:
    """All that the two tables hold: a good row as the record that it came from, a rejected one as it is."""
    rows = [
        (row["_partition"], row["_offset"], json.dumps({"id": row["id"], "price": row["price"]}))
        for row in place.rows()
    ]
    rejected = [(row["partition"], row["offset"], bytes(row["value"]).decode()) for row in place.rejected()]
    return sorted(rows + rejected)


def checksum(found: Found) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def assert_exact(place: Readable, servers: str, topic: str) -> None:
    """Count and checksum are the topic's, every offset is there, none twice, each in its table."""
    expected, found = in_topic(servers, topic), in_place(place)
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert (len(found), checksum(found)) == (len(expected), checksum(expected))
    assert all(is_good(row["id"]) for row in place.rows())


def assert_settled(admin: Admin, group: str, topic: str, place: Readable) -> None:
    """Sink, group and log agree: what is loaded is contiguous up to the end, and everybody knows."""
    partitions = [TopicPartition(topic, each.partition) for each in admin.describe_topic(topic).partitions]
    ends = {one: at.offset for one, at in admin.list_offsets(topic).items() if at is not None}
    assert {one: at.offset for one, at in admin.group_offsets(group, topic).items()} == ends
    standing = place.sink().standing(group, partitions)
    for one in partitions:
        rows, rejected = standing[one].rows, standing[one].rejected
        assert rows is not None and rejected is not None
        assert rows.next_offset == rejected.next_offset == ends[one]
