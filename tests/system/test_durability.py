"""What an acknowledgement means: with acks=all, on the disk and not before; and what a failing disk does."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.log.files import Files, OpenFile, StrPath
from millstream.errors import ErrorCode
from millstream.wire.messages.produce import ProduceRequest
from millstream.wire.records.batch_header import iter_headers
from millstream.wire.records.batches import decode_batch
from tests.system.raw_client import RawClient, produce_request, running_broker
from tests.waiting import SECONDS, until

TOPIC = "orders"


class Disk(Files):
    """A real disk with switches: its log files can be slow to sync, fail to, or be full."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.sync_error: OSError | None = None
        self.full = False
        self.syncs = 0

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        file = super().open(path, create=create)
        if os.fspath(path).endswith(".log"):
            return LogFile(os.dup(file.fileno()), file.path, self)
        return file


class LogFile(OpenFile):
    __slots__ = ("disk",)

    def __init__(self, fd: int, path: str, disk: Disk) -> None:
        super().__init__(fd, path)
        self.disk = disk

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.disk.full:
            super().pwrite(memoryview(data)[:10], position)  # a full disk takes a little, then no more
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().pwrite(data, position)

    def fdatasync(self) -> None:
        self.disk.may_sync.wait(SECONDS)
        self.disk.syncs += 1
        if self.disk.sync_error is not None:
            raise self.disk.sync_error
        super().fdatasync()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def client(tmp_path: Path, disk: Disk) -> Iterator[RawClient]:
    with running_broker(tmp_path, disk) as broker, RawClient(broker.address) as made:
        made.create_topic(TOPIC)
        yield made
        disk.may_sync.set()


def answers_within(client: RawClient, seconds: float) -> bool:
    return bool(select.select([client.sock], [], [], seconds)[0])


def values(client: RawClient) -> list[bytes | None]:
    found: list[bytes | None] = []
    while True:
        data = client.fetch(TOPIC, len(found))
        assert data.error_code == 0
        if not data.records:
            return found
        for position, header in iter_headers(data.records):
            one = data.records[position : position + header.size]
            found += [record.value for record in decode_batch(one, max_decompressed_bytes=1 << 20)]


def test_acks_all_waits_for_the_disk_and_acks_1_does_not(client: RawClient, disk: Disk) -> None:
    disk.may_sync.clear()
    assert client.produce(TOPIC, b"in the log", acks=1).error_code == 0
    client.send(produce_request(TOPIC, [b"on the disk"], acks=-1), 9)
    assert not answers_within(client, 0.3), "acks=all was answered before its data was on the disk"
    disk.may_sync.set()
    client.receive(ProduceRequest, 9)


def test_requests_in_flight_share_a_sync(client: RawClient, disk: Disk) -> None:
    client.produce(TOPIC, b"the first makes the files")
    disk.may_sync.clear()
    before = disk.syncs
    for number in range(50):
        client.send(produce_request(TOPIC, [b"%d" % number]), 9)
    host, port = client.sock.getpeername()
    with RawClient(f"{host}:{port}") as other:
        until(lambda: other.fetch(TOPIC).high_watermark == 51, "all requests are appended, and wait")
    assert not answers_within(client, 0.2)
    disk.may_sync.set()
    for _ in range(50):
        client.receive(ProduceRequest, 9)
    assert disk.syncs - before <= 4
    assert len(values(client)) == 51


def test_acks_0_is_never_answered(client: RawClient) -> None:
    client.send(produce_request(TOPIC, [b"quiet"], acks=0), 9)
    assert client.produce(TOPIC, b"loud").base_offset == 1, "the first answer is the second request's"


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(client: RawClient, disk: Disk) -> None:
    client.produce(TOPIC, b"before")
    disk.full = True
    for acks in (1, -1):
        assert client.produce(TOPIC, b"lost", acks=acks).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(client) == [b"before"]
    disk.full = False
    assert client.produce(TOPIC, b"after").base_offset == 1
    assert values(client) == [b"before", b"after"]


def test_a_failed_sync_is_not_retried_as_if_it_had_worked(client: RawClient, disk: Disk) -> None:
    client.produce(TOPIC, b"durable")
    epoch = client.metadata(TOPIC).topics[0].partitions[0].leader_epoch
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert client.produce(TOPIC, b"unknown").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.sync_error = None
    assert client.produce(TOPIC, b"next").base_offset == 1, "what may not be on the disk was cut"
    assert values(client) == [b"durable", b"next"]
    assert client.metadata(TOPIC).topics[0].partitions[0].leader_epoch > epoch, "readers can notice the cut"
