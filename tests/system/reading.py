"""Reading topics back in tests, with nothing but the client layer and the strict decoder."""

from __future__ import annotations

import time

from millstream.client.blocking import BlockingCalls, Deadline
from millstream.client.client import Client
from millstream.client.targets import Node
from millstream.config import AdminConfig
from millstream.errors import NotLeaderOrFollowerError, raise_for_code
from millstream.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millstream.wire.records.batch_header import iter_headers
from millstream.wire.records.batches import RecordData, decode_batch
from tests.waiting import SECONDS


def read_topic(bootstrap_servers: str, topic: str) -> list[list[RecordData]]:
    """All records of a topic, by partition."""
    client = Client(AdminConfig.from_settings({"bootstrap_servers": bootstrap_servers}))
    try:
        calls = BlockingCalls(client)
        info = calls.refresh_metadata([topic], Deadline(SECONDS)).topics[topic]
        return [
            _read_partition(calls, topic, info.topic_id, one.partition, one.leader) for one in info.partitions
        ]
    finally:
        client.close(SECONDS)


def _read_partition(
    calls: BlockingCalls, topic: str, topic_id: bytes, partition: int, leader: int | None
) -> list[RecordData]:
    assert leader is not None
    records: list[RecordData] = []
    while True:
        offset = records[-1].offset + 1 if records else 0
        more = _fetch_when_led(calls, topic, topic_id, partition, leader, offset)
        records += [record for record in more if record.offset >= offset]
        if not more:
            return records


def _fetch_when_led(
    calls: BlockingCalls, topic: str, topic_id: bytes, partition: int, leader: int, offset: int
) -> list[RecordData]:
    """Kafka tells of a topic before each of its partitions is led: that passes."""
    deadline = Deadline(SECONDS)
    while True:
        try:
            return _fetch(calls, topic, topic_id, partition, leader, offset)
        except NotLeaderOrFollowerError:
            assert not deadline.is_over, f"{topic}-{partition} is not led"
            time.sleep(0.01)


def _fetch(
    calls: BlockingCalls, topic: str, topic_id: bytes, partition: int, leader: int, offset: int
) -> list[RecordData]:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=8 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
    response = calls.call(Node(leader), FetchResponse, lambda version: request, Deadline(SECONDS))
    raise_for_code(response.error_code)
    if not response.responses:
        return []
    found = response.responses[0].partitions[0]
    raise_for_code(found.error_code)
    data = found.records or b""
    return [
        record
        for position, header in iter_headers(data, allow_partial=True)
        for record in decode_batch(data[position : position + header.size], max_decompressed_bytes=1 << 26)
    ]
