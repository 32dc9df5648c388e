"""Bad input: whatever one peer sends, the broker answers or closes, stays small, and serves the others."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from millstream.embedded import EmbeddedBroker
from millstream.errors import ErrorCode, InvalidTopicError
from millstream.wire import apis
from millstream.wire.messages.api_versions import API_VERSIONS, ApiVersionsResponse
from millstream.wire.messages.fetch import FETCH, FetchRequest, FetchResponse
from millstream.wire.messages.metadata import METADATA
from millstream.wire.messages.produce import (
    PRODUCE,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
)
from millstream.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.wire.records.crc32c import crc32c
from tests.system.raw_client import RawClient, batch, fetch_request, produce_request, running_broker
from tests.waiting import soon_enough, until

TOPIC = "good"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """Its data are in a directory that nobody else writes to, so that one can see what it makes there."""
    with EmbeddedBroker(tmp_path_factory.mktemp("hostile") / "data") as running:
        with RawClient(running.bootstrap_servers) as client:
            client.create_topic(TOPIC)
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as made:
        yield made


@pytest.fixture(autouse=True)
def the_broker_serves_others(broker: EmbeddedBroker) -> Iterator[None]:
    """After every attack a well-behaved client is served."""
    with RawClient(broker.bootstrap_servers) as other:
        yield
        assert other.produce(TOPIC, b"still here").error_code == 0


def header(api_key: int, version: int, client_id: bytes = b"x") -> bytes:
    return struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


ATTACKS = {
    "a negative size": struct.pack(">i", -1),
    "the most negative size": struct.pack(">i", -(2**31)),
    "two gigabytes": struct.pack(">i", 2**31 - 1),
    "just over the limit": struct.pack(">i", 104857601),
    "an empty frame": framed(b""),
    "a frame that ends in its header": framed(b"\0\x03\0"),
    "an unknown API": framed(header(999, 0)),
    "a negative API": framed(header(-5, 0)),
    "a version from the future": framed(header(METADATA.key, 99)),
    "a version of the past": framed(header(FETCH.key, 0)),
    "a client id past the end": framed(struct.pack(">hhih", 3, 1, 1, 3000) + b"short"),
    "a count of two billion topics": framed(header(METADATA.key, 1) + struct.pack(">i", 2**31 - 1)),
    "a negative count": framed(header(METADATA.key, 1) + struct.pack(">i", -7)),
    "a name past the end": framed(header(METADATA.key, 1) + struct.pack(">ih", 1, 30000) + b"ab"),
    "an endless varint": framed(header(METADATA.key, 12) + b"\0" + b"\xff" * 20),
    "a web browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030102000100") + bytes(100),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_malformed_requests_close_the_connection(client: RawClient, attack: str) -> None:
    client.sock.sendall(ATTACKS[attack])
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("seed", range(20))
def test_noise_closes_or_is_answered(broker: EmbeddedBroker, seed: int) -> None:
    rng = random.Random(seed)
    api = rng.choice(list(apis.all_apis().values()))
    version = rng.randint(api.min_version, api.max_version)
    with RawClient(broker.bootstrap_servers) as client:
        client.sock.sendall(framed(header(api.key, version) + rng.randbytes(rng.randint(0, 500))))
        client.sock.shutdown(socket.SHUT_WR)
        while client.sock.recv(65536):
            continue


def test_a_newer_api_versions_is_answered_with_what_there_is(client: RawClient) -> None:
    client.sock.sendall(framed(header(API_VERSIONS.key, 99)))
    answer = ApiVersionsResponse.decode(client.receive_frame()[4:], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    spoken = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert spoken[FETCH.key] == (FETCH.min_version, FETCH.max_version)


def produce_raw(client: RawClient, records: bytes | None) -> int:
    request = produce_request(TOPIC, [b"x"])
    request.topic_data[0].partition_data = [PartitionProduceData(index=0, records=records)]
    response = client.call(request, 9, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def damaged(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(batch(b"one", b"two"))
    change(data)
    return bytes(data)


def claiming(count: int) -> bytes:
    """A batch of one record that claims so many, with a checksum that fits."""
    data = bytearray(batch(b"one"))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


BATCHES = {
    "a wrong checksum": (damaged(lambda d: d.__setitem__(-1, d[-1] ^ 1)), ErrorCode.CORRUPT_MESSAGE),
    "a torn batch": (batch(b"one", b"two")[:-1], ErrorCode.INVALID_RECORD),
    "half a header": (batch(b"one")[:30], ErrorCode.INVALID_RECORD),
    "a length of minus one": (
        damaged(lambda d: struct.pack_into(">i", d, 8, -1)),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "an old format": (damaged(lambda d: d.__setitem__(16, 1)), ErrorCode.INVALID_RECORD),
    "two batches": (batch(b"one") + batch(b"two"), ErrorCode.INVALID_RECORD),
    "more records than bytes": (claiming(2**31 - 1), ErrorCode.INVALID_RECORD),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "more than max.message.bytes": (batch(bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
    "a transaction's batch": (
        batch(b"x", transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_bad_batches_get_kafkas_error(client: RawClient, name: str) -> None:
    records, expected = BATCHES[name]
    assert ErrorCode(produce_raw(client, records)) == expected


def test_transactions_are_refused_clearly(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    assert client.call(request, 4, InitProducerIdResponse).error_code == ErrorCode.UNSUPPORTED_VERSION
    produce = produce_request(TOPIC, [b"x"])
    produce.transactional_id = "tx"
    answer = client.call(produce, 9, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message is not None
    assert "not supported yet" in answer.error_message


NAMES = ["", ".", "..", "../escape", "a/b", "a\\b", "a\0b", "nul\n", "ü", "x" * 250, "/etc/passwd"]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_outside_the_data_directory_can_be_named(
    broker: EmbeddedBroker, client: RawClient, name: str
) -> None:
    before = sorted(os.listdir(broker.data.parent))
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    answer = client.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse).topics[0]
    assert answer.error_code == InvalidTopicError.code
    assert client.metadata(name, create=True).topics[0].error_code == InvalidTopicError.code
    assert sorted(os.listdir(broker.data.parent)) == before


def memory_mb(broker: EmbeddedBroker) -> float:
    return float(psutil.Process(broker.pid).memory_info().rss / 1e6)


def test_claimed_sizes_take_no_memory(broker: EmbeddedBroker) -> None:
    before = memory_mb(broker)
    attackers = [RawClient(broker.bootstrap_servers) for _ in range(200)]
    for attacker in attackers:
        attacker.sock.sendall(struct.pack(">i", 104857600) + header(PRODUCE.key, 9))
    with RawClient(broker.bootstrap_servers) as other:
        assert other.produce(TOPIC, b"x").error_code == 0
    assert memory_mb(broker) - before < 50
    for attacker in attackers:
        attacker.sock.close()


def test_half_sent_requests_share_a_budget(tmp_path: Path) -> None:
    limit = 16 << 20
    with running_broker(tmp_path, settings={"queued.max.request.bytes": limit}) as broker:
        attackers = [RawClient(broker.address) for _ in range(6)]
        for attacker in attackers:
            attacker.sock.sendall(struct.pack(">i", 100_000_000) + bytes(6 << 20))
        until(
            lambda: broker.services.metrics.bytes_in > 0 or broker._server.memory.total <= limit,
            "the budget is kept",
        )
        with RawClient(broker.address) as other:
            other.create_topic("t")
            assert other.produce("t", b"x").error_code == 0
            assert broker._server.memory.total <= limit
        for attacker in attackers:
            attacker.sock.close()


def test_a_sender_that_stops_half_way_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.broker.broker._STALLED_FRAME_MS", 200)
    with running_broker(tmp_path) as broker, RawClient(broker.address) as slow:
        slow.sock.sendall(struct.pack(">i", 1000) + b"and then nothing")
        assert slow.is_closed_by_peer()


def test_many_connections(broker: EmbeddedBroker) -> None:
    before = memory_mb(broker)
    clients = [RawClient(broker.bootstrap_servers) for _ in range(2000)]
    try:
        for client in clients[::100]:
            assert client.metadata(TOPIC).topics[0].error_code == 0
        assert memory_mb(broker) - before < 60
    finally:
        for client in clients:
            client.sock.close()


def test_replies_keep_the_order_of_requests(client: RawClient) -> None:
    """A parked fetch holds the answers of later requests on its connection, not their work."""
    end = client.fetch(TOPIC).high_watermark
    client.send(fetch_request(TOPIC, end, max_wait_ms=5000), 12)
    client.send(produce_request(TOPIC, [b"wakes the fetch"]), 9)
    first, fetched = client.receive(FetchRequest, 12)
    second, _ = client.receive(ProduceRequest, 9)
    assert second == first + 1
    assert isinstance(fetched, FetchResponse)
    assert len(fetched.responses[0].partitions[0].records) > 0


def test_parked_fetches_cost_nothing(broker: EmbeddedBroker, client: RawClient) -> None:
    end = client.fetch(TOPIC).high_watermark
    parked = [RawClient(broker.bootstrap_servers) for _ in range(200)]
    for each in parked:
        each.send(fetch_request(TOPIC, end, max_wait_ms=60_000), 12)
    client.metadata(TOPIC)
    process = psutil.Process(broker.pid)

    def used() -> float:
        before = process.cpu_times()
        time.sleep(2.0)  # what is measured is what happens while nothing happens
        after = process.cpu_times()
        return float(after.user + after.system - before.user - before.system)

    soon_enough(used, 0.06, "seconds of CPU in 2 s of waiting")
    client.produce(TOPIC, b"wake up")
    for each in parked:
        _, response = each.receive(FetchRequest, 12)
        assert isinstance(response, FetchResponse)
        assert len(response.responses[0].partitions[0].records) > 0
        each.sock.close()


def test_a_decompression_bomb_is_bounded(broker: EmbeddedBroker, client: RawClient) -> None:
    """The broker looks inside batches of compacted topics, for their keys: a bomb must not go off there."""
    topic = CreatableTopic(
        name="compacted",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
    )
    client.call(CreateTopicsRequest(topics=[topic]), 5, CreateTopicsResponse)
    packer = zlib.compressobj(9, wbits=31)
    payload = packer.compress(bytes(1 << 29)) + packer.flush()
    data = rewritten(batch(b"x"), payload)
    before = memory_mb(broker)
    request = produce_request("compacted", [b"x"])
    request.topic_data[0].partition_data = [PartitionProduceData(index=0, records=data)]
    answer = client.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
    assert answer.error_code != 0
    assert memory_mb(broker) - before < 120


def rewritten(original: bytes, payload: bytes) -> bytes:
    """A batch whose records are gzip bytes of our choice, with lengths and checksum that fit."""
    head = bytearray(original[:61])
    struct.pack_into(">i", head, 8, 49 + len(payload))
    struct.pack_into(">h", head, 21, 1)
    data = bytes(head) + payload
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
