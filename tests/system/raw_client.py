"""A client as small as can be: one blocking socket, frames in and out. To see what the broker answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from millstream.broker.broker import Broker
from millstream.broker.log.files import Files
from millstream.broker.settings import BrokerSettings
from millstream.wire.frames import decode_response, encode_request
from millstream.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.schema import Request, Response
from tests.waiting import SECONDS

R = TypeVar("R", bound=Response)


class RawClient:
    """One connection to a broker."""

    def __init__(self, address: str, timeout: float = SECONDS, client_id: str = "raw") -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=timeout)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: Request, version: int) -> int:
        """Send a request, without waiting; returns its correlation id."""
        self._correlation_id += 1
        chunks = encode_request(request, version, self._correlation_id, self._client_id)
        self.sock.sendall(b"".join(bytes(chunk) for chunk in chunks))
        return self._correlation_id

    def receive(self, request_type: type[Request], version: int) -> tuple[int, Response]:
        return decode_response(request_type, version, memoryview(self.receive_frame()))

    def receive_frame(self) -> bytes:
        return self._read(int.from_bytes(self._read(4), "big"))

    def call(self, request: Request, version: int, response_type: type[R]) -> R:
        """Send a request and wait for its answer."""
        sent = self.send(request, version)
        correlation_id, response = self.receive(type(request), version)
        assert correlation_id == sent
        assert isinstance(response, response_type)
        return response

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self.sock.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            data += chunk
        return data

    def is_closed_by_peer(self) -> bool:
        """Whether the broker has closed the connection; waits for that."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    # --- the requests that most tests need

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
        )
        response = self.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    def produce(
        self, topic: str, *values: bytes, acks: int = -1, partition: int = 0
    ) -> PartitionProduceResponse:
        response = self.call(produce_request(topic, values, acks, partition), 9, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0
    ) -> PartitionData:
        request = fetch_request(topic, offset, partition=partition, max_wait_ms=max_wait_ms)
        response = self.call(request, 12, FetchResponse)
        return response.responses[0].partitions[0]

    def metadata(self, *topics: str, create: bool = False) -> MetadataResponse:
        wanted = [MetadataRequestTopic(name=name) for name in topics] or None
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        return self.call(request, 12, MetadataResponse)


def produce_request(
    topic: str, values: Sequence[bytes], acks: int = -1, partition: int = 0
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=batch(*values))],
            )
        ],
    )


def batch(*values: bytes, **fields: Any) -> bytes:
    records = [RecordData(number, 1_700_000_000_000, None, value) for number, value in enumerate(values)]
    return encode_batch(records, **fields)


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


@contextmanager
def running_broker(
    data: Path, files: Files | None = None, settings: dict[str, object] | None = None
) -> Iterator[Broker]:
    """A broker on a thread of the test, so that the test can replace what is under it."""
    broker = Broker(data, BrokerSettings.from_properties(settings), files)
    broker.start("127.0.0.1:0")
    thread = threading.Thread(target=broker.run)
    thread.start()
    try:
        yield broker
    finally:
        broker.stop()
        thread.join(SECONDS)
        assert not thread.is_alive(), "the broker did not stop"
