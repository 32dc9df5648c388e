"""What an attacker and an engineer of Kafka found: each test is one finding, and fails without its fix."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.broker import Broker
from millstream.broker.log.files import Files, StrPath
from millstream.errors import ErrorCode
from millstream.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from millstream.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from millstream.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.records.primitives import Buffer
from tests.system.raw_client import RawClient, fetch_request, produce_request, running_broker
from tests.waiting import SECONDS, soon_enough, until

TOPIC = "t"
OFFSETS = "__consumer_offsets"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.address) as made:
        yield made


def test_a_connection_goes_on_after_an_answer_that_the_socket_took_at_one_go(client: RawClient) -> None:
    """Over 1 MiB unsent stops the reading; it has to begin again also where the socket never was full."""
    client.create_topic(TOPIC, partitions=2)
    for partition in (0, 1):
        client.produce(TOPIC, b"x" * 700_000, partition=partition)
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (0, 1)
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=wanted)])
    for _ in range(20):
        response = client.call(request, 12, FetchResponse)
        assert all(len(partition.records) > 700_000 for partition in response.responses[0].partitions)


def test_a_parked_fetch_ends_with_its_connection(broker: Broker, client: RawClient) -> None:
    client.create_topic(TOPIC)
    with RawClient(broker.address) as other:
        for _ in range(50):
            other.send(fetch_request(TOPIC, 0, max_wait_ms=600_000), 12)
        until(lambda: broker.services.metrics.parked_fetches == 50, "fifty fetches wait")
    until(lambda: broker.services.metrics.parked_fetches == 0, "none waits any more")
    assert not broker.services.topics.get(TOPIC).partitions[0].watchers  # type: ignore[union-attr]


class TestInternalTopic:
    @pytest.fixture(autouse=True)
    def offsets_topic(self, client: RawClient) -> None:
        client.metadata(OFFSETS, create=True)

    def test_clients_cannot_write_to_it(self, client: RawClient) -> None:
        records = encode_batch([RecordData(0, 0, b"\0\1garbage", b"garbage")])
        data = TopicProduceData(name=OFFSETS, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        answer = client.call(request, 9, ProduceResponse).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_its_records_cannot_be_deleted(self, client: RawClient) -> None:
        assert delete_records(client, OFFSETS) == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_it_cannot_be_deleted(self, client: RawClient) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS)], timeout_ms=1000)
        answer = client.call(request, 6, DeleteTopicsResponse).responses[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_it_cannot_grow(self, client: RawClient) -> None:
        """A group's partition follows from their number: its commits would be looked for elsewhere."""
        grown = CreatePartitionsTopic(name=OFFSETS, count=60, assignments=None)
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000, validate_only=False)
        answer = client.call(request, 3, CreatePartitionsResponse).results[0]
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def delete_records(client: RawClient, topic: str) -> int:
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=1000
    )
    return client.call(request, 2, DeleteRecordsResponse).topics[0].partitions[0].error_code


def create_topics(client: RawClient, *topics: CreatableTopic, validate_only: bool = False) -> list[int]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return [topic.error_code for topic in client.call(request, 5, CreateTopicsResponse).topics]


def new_topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(client: RawClient) -> None:
    assert create_topics(client, new_topic(TOPIC, cleanup_policy="compact")) == [0]
    assert delete_records(client, TOPIC) == ErrorCode.POLICY_VIOLATION


def test_records_without_a_key_are_named_where_keys_are_needed(client: RawClient) -> None:
    assert create_topics(client, new_topic(TOPIC, cleanup_policy="compact")) == [0]
    answer = client.produce(TOPIC, b"x", b"y")
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0, 1]


def test_a_topic_may_keep_all_it_has(client: RawClient) -> None:
    assert create_topics(client, new_topic(TOPIC, cleanup_policy="")) == [0]
    assert client.produce(TOPIC, b"x").error_code == 0
    assert delete_records(client, TOPIC) == ErrorCode.POLICY_VIOLATION


def test_a_fetch_session_knows_a_topic_that_is_gone_by_its_name(client: RawClient) -> None:
    """As in Kafka: not there, or there as another one; by its id alone it would be just unknown."""
    client.create_topic(TOPIC)
    (described,) = client.metadata(TOPIC).topics
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=0,
        topics=[FetchTopic(topic_id=described.topic_id, partitions=[partition])],
    )
    request.session_id = client.call(request, 13, FetchResponse).session_id
    request.topics, codes = [], []
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000)
    client.call(delete, 6, DeleteTopicsResponse)
    for epoch in (1, 2):
        request.session_epoch = epoch
        answer = client.call(request, 13, FetchResponse)
        codes.append(answer.responses[0].partitions[0].error_code)
        if epoch == 1:
            client.create_topic(TOPIC)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_topic_named_ambiguously_is_answered_each_time(client: RawClient) -> None:
    both = DeleteTopicState(name=TOPIC, topic_id=b"x" * 16)
    answer = client.call(DeleteTopicsRequest(topics=[both, both], timeout_ms=1000), 6, DeleteTopicsResponse)
    assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_one_request_creates_only_so_many_partitions(client: RawClient) -> None:
    assert create_topics(client, *(new_topic(f"t{n}", 6000) for n in range(2))) == [44, 44]
    assert create_topics(client, new_topic("t0", 6000)) == [0]


def test_many_topics_in_one_request_take_linear_time(client: RawClient) -> None:
    many = [new_topic(f"t{number}") for number in range(20_000)]

    def attempt() -> float:
        begin = time.process_time()  # the broker's thread is one of this process
        assert set(create_topics(client, *many, validate_only=True)) == {44}
        return time.process_time() - begin

    soon_enough(attempt, 8.0, "seconds of CPU for 20,000 topics")


def test_a_name_given_often_is_described_once(client: RawClient) -> None:
    client.create_topic(TOPIC, partitions=100)
    assert len(client.metadata(*[TOPIC] * 1000).topics) == 1
    resources = [
        DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)
    ] * 1000
    response = client.call(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    assert len(response.results) == 1


def test_a_negative_cursor_begins_at_the_first_partition(client: RawClient) -> None:
    client.create_topic(TOPIC, partitions=3)
    cursor = Cursor(topic_name=TOPIC, partition_index=-5)
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=10, cursor=cursor)
    response = client.call(request, 0, DescribeTopicPartitionsResponse)
    assert [p.partition_index for p in response.topics[0].partitions] == [0, 1, 2]
    assert response.next_cursor is None


@pytest.mark.parametrize(("version", "code"), [(2, 53), (4, 35)])
def test_transactions_are_refused_so_that_every_client_gives_up(
    client: RawClient, version: int, code: int
) -> None:
    """In version 2 it is librdkafka, which asks for ever unless it takes the code for final."""
    keys = {"key": "t"} if version < 4 else {"coordinator_keys": ["t"]}
    request = FindCoordinatorRequest(key_type=1, **keys)
    response = client.call(request, version, FindCoordinatorResponse)
    answer = response if version < 4 else response.coordinators[0]
    assert answer.error_code == code
    assert "transactions are not supported yet" in (answer.error_message or "")


class SlowDirectories(Files):
    """Directories whose sync waits, so that a test can delete and make a topic meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_for = ""
        self.waiting = threading.Event()
        self.go_on = threading.Event()

    def sync_directory(self, path: StrPath) -> None:
        if self.waits_for and str(path).endswith(self.waits_for):
            self.waits_for = ""
            self.waiting.set()
            self.go_on.wait(SECONDS)
            raise FileNotFoundError(2, "No such file or directory", str(path))
        super().sync_directory(path)


def test_a_sync_of_a_deleted_topic_does_not_cut_the_files_of_its_successor(tmp_path: Path) -> None:
    files = SlowDirectories()
    with (
        running_broker(tmp_path / "data", files) as broker,
        RawClient(broker.address) as client,
        RawClient(broker.address) as producer,
    ):
        client.create_topic(TOPIC)
        files.waits_for = f"{TOPIC}-0"
        producer.send(produce_request(TOPIC, [b"old"]), 9)
        assert files.waiting.wait(SECONDS)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=1000)
        assert client.call(request, 6, DeleteTopicsResponse).responses[0].error_code == 0
        client.create_topic(TOPIC)
        assert client.produce(TOPIC, b"new").error_code == 0
        files.go_on.set()
        _, response = producer.receive(ProduceRequest, 9)
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = client.fetch(TOPIC)
        assert found.high_watermark == 1
        assert b"new" in bytes(found.records)


class NoRoomForNotes(Files):
    """A disk that is full when the broker stops."""

    full = False

    def write_atomically(self, path: StrPath, data: Buffer, *, private: bool = False) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().write_atomically(path, data)


def test_a_stop_on_a_full_disk_is_told_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = NoRoomForNotes()
    with running_broker(tmp_path / "data", files) as broker:
        with RawClient(broker.address) as client:
            client.create_topic(TOPIC)
            client.produce(TOPIC, b"kept")
        files.full = True
    assert "No space left" in caplog.text
    shutil.copytree(tmp_path / "data", tmp_path / "copy")  # as another process would find it
    with running_broker(tmp_path / "copy") as broker, RawClient(broker.address) as client:
        assert b"kept" in bytes(client.fetch(TOPIC).records)
