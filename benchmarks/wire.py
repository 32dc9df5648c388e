"""Microseconds per message of the wire layer: python benchmarks/wire.py [seconds per case]

The cases are what a busy broker and a busy client do for every request: one partition with 1 KiB of records,
in a new version. Each line is the best of several rounds, in processor time: a busy machine spoils little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from millstream.wire import frames
from millstream.wire.messages import fetch, groups, metadata, produce

TOPIC_ID = bytes(range(16))
RECORDS = bytes(1024)


def produce_request() -> produce.ProduceRequest:
    partition = produce.PartitionProduceData(index=0, records=RECORDS)
    topic = produce.TopicProduceData(name="orders", topic_id=TOPIC_ID, partition_data=[partition])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> produce.ProduceResponse:
    partition = produce.PartitionProduceResponse(index=0, error_code=0, base_offset=123_456)
    topic = produce.TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=[partition])
    return produce.ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> fetch.FetchRequest:
    asked = [
        fetch.FetchPartition(partition=index, fetch_offset=123_456, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    topic = fetch.FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=asked)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, session_id=7, session_epoch=3, topics=[topic])


def fetch_response() -> fetch.FetchResponse:
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=123_456,
        aborted_transactions=None,
        records=memoryview(RECORDS),
    )
    topic = fetch.FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchResponse(session_id=7, responses=[topic])


def metadata_response() -> metadata.MetadataResponse:
    partitions = [
        metadata.MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(100)
    ]
    topic = metadata.MetadataResponseTopic(
        error_code=0, name="orders", topic_id=TOPIC_ID, partitions=partitions
    )
    broker = metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)
    return metadata.MetadataResponse(brokers=[broker], cluster_id="mill", controller_id=1, topics=[topic])


def heartbeat() -> groups.HeartbeatRequest:
    return groups.HeartbeatRequest(group_id="loaders", generation_id=5, member_id="member-0123456789abcdef")


def joined(chunks: list[Any]) -> memoryview:
    return memoryview(b"".join(chunks))[4:]


def request_cases(name: str, build: Callable[[], Any], version: int) -> list[tuple[str, Callable[[], Any]]]:
    request = build()
    frame = joined(frames.encode_request(request, version, 1, "bench"))
    return [
        (f"{name} build", build),
        (f"{name} encode", lambda: frames.encode_request(request, version, 1, "bench")),
        (f"{name} decode", lambda: frames.decode_request(frame)),
    ]


def response_cases(
    name: str, build: Callable[[], Any], request_type: type[Any], version: int
) -> list[tuple[str, Callable[[], Any]]]:
    response = build()
    frame = joined(frames.encode_response(response, version, 1))
    return [
        (f"{name} build", build),
        (f"{name} encode", lambda: frames.encode_response(response, version, 1)),
        (f"{name} decode", lambda: frames.decode_response(request_type, version, frame)),
    ]


def microseconds(case: Callable[[], Any], seconds: float) -> float:
    """The best of several rounds, each of them about a twentieth of the time."""
    best, count = float("inf"), 1
    stop = time.process_time() + seconds
    while time.process_time() < stop:
        start = time.process_time()
        for _ in range(count):
            case()
        taken = time.process_time() - start
        best = min(best, taken / count)
        count = max(1, int(seconds / 20 * count / max(taken, 1e-6)))
    return best * 1e6


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
    cases = [
        *request_cases("Produce v12 request", produce_request, 12),
        *response_cases("Produce v12 response", produce_response, produce.ProduceRequest, 12),
        *request_cases("Fetch v17 request", lambda: fetch_request(1), 17),
        *request_cases("Fetch v17 request, 100 partitions", lambda: fetch_request(100), 17),
        *response_cases("Fetch v17 response", fetch_response, fetch.FetchRequest, 17),
        *response_cases("Fetch v4 response", fetch_response, fetch.FetchRequest, 4),
        *request_cases("Heartbeat v4 request", heartbeat, 4),
        *response_cases(
            "Metadata v12 response, 100 partitions", metadata_response, metadata.MetadataRequest, 12
        ),
    ]
    for name, case in cases:
        print(f"{name:<46} {microseconds(case, seconds):9.2f} µs")


if __name__ == "__main__":
    main()
