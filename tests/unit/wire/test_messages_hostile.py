"""Bytes that are no message: only CorruptMessage comes out, soon, and without taking much memory."""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import CorruptMessage
from millstream.wire.frames import UnknownRequestError, decode_request, decode_response
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.group_offsets import OffsetCommitRequest
from millstream.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.wire.messages.produce import ProduceRequest
from millstream.wire.messages.sasl import SaslHandshakeRequest
from millstream.wire.schema import Message
from tests.unit.wire.message_values import all_messages, filled, versions_of
from tests.waiting import soon_enough

EVERY_MESSAGE = pytest.mark.parametrize("message", all_messages(), ids=lambda message: message.__name__)


def examples(message: type[Message]) -> Iterator[tuple[int, bytes]]:
    for version in versions_of(message):
        yield version, filled(message, version).encode(version)


def uvarint(value: int) -> bytes:
    out = b""
    while value >= 128:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


@EVERY_MESSAGE
def test_cut_at_every_byte(message: type[Message]) -> None:
    for version, data in examples(message):
        view = memoryview(data)
        for end in range(len(data)):
            with pytest.raises(CorruptMessage):
                message.decode(view[:end], version)


@EVERY_MESSAGE
def test_every_byte_changed(message: type[Message]) -> None:
    """Lengths, counts, tags and marks become huge, negative or overlong; most other bytes are only values."""
    for version, data in examples(message):
        for position in range(len(data)):
            for changed in (b"\xff", b"\x7f", b"\x80", b"\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
                hostile = data[:position] + changed + data[position + len(changed) :]
                with contextlib.suppress(CorruptMessage):
                    message.decode(hostile, version)


@settings(max_examples=200, deadline=None, database=None)
@given(st.sampled_from(all_messages()), st.integers(0, 20), st.binary(max_size=200))
def test_random_bytes(message: type[Message], version: int, data: bytes) -> None:
    with contextlib.suppress(CorruptMessage):
        message.decode(data, min(max(version, message.versions[0]), message.versions[1]))


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(-1, 80), st.integers(-1, 20), st.binary(max_size=100))
def test_random_frames(api_key: int, version: int, data: bytes) -> None:
    frame = struct.pack(">hhi", api_key, version, 1) + data
    with contextlib.suppress(CorruptMessage, UnknownRequestError):
        decode_request(memoryview(frame))
    with contextlib.suppress(CorruptMessage):
        decode_response(FetchRequest, 17, memoryview(frame))


def refused(message: type[Message], data: bytes, version: int, match: str) -> float:
    """How many seconds of the processor's time it took to refuse."""
    start = time.thread_time()
    with pytest.raises(CorruptMessage, match=match):
        message.decode(data, version)
    return time.thread_time() - start


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that were held meanwhile: by all threads, as nothing tells them apart."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [2, 1000, 2**31 - 1])
def test_a_count_larger_than_the_frame_costs_nothing(count: int) -> None:
    def refuse() -> None:
        refused(MetadataRequest, struct.pack(">i", count), 1, "topics claims")
        refused(MetadataRequest, uvarint(count + 1), 9, "topics claims")

    soon_enough(lambda: peak_of(refuse), 100_000, "bytes")


def test_a_count_is_checked_against_the_size_of_its_elements() -> None:
    header = struct.pack(">hhi", -1, 1, 30_000)  # no transactional id, acks, timeout
    # A topic of version 3 takes at least 6 bytes: its name's length and its partitions' count.
    assert ProduceRequest.decode(header + struct.pack(">i", 2) + bytes(12), 3).topic_data[1].name == ""
    refused(ProduceRequest, header + struct.pack(">i", 3) + bytes(17), 3, "topic_data claims 3 elements")


def test_elements_are_limited_in_one_array() -> None:
    limit = MetadataRequest.max_elements
    topic = b"\x01\x00"
    flags = b"\0\0\0\0"
    assert len(MetadataRequest.decode(uvarint(limit + 1) + topic * limit + flags, 9).topics or ()) == limit
    refused(MetadataRequest, uvarint(limit + 2) + topic * (limit + 1) + flags, 9, "topics claims")


def test_elements_are_limited_over_nested_arrays() -> None:
    limit = OffsetCommitRequest.max_elements
    topic = (
        b"\x01"
        + uvarint(limit // 2 + 1)
        + (struct.pack(">iqi", 1, 2, 3) + b"\x00\x00") * (limit // 2)
        + b"\0"
    )
    head = b"\x02g" + struct.pack(">i", 5) + b"\x02m" + b"\x00"
    refused(OffsetCommitRequest, head + b"\x03" + topic * 2 + b"\0", 9, "partitions claims")


def test_numbers_count_as_elements() -> None:
    limit = MetadataResponse.max_elements
    assert limit > MetadataRequest.max_elements, "large clusters have large answers"
    partition = struct.pack(">hiii", 0, 0, 0, 0) + uvarint(limit)
    head = struct.pack(">i", 0) + b"\x01\x00" + struct.pack(">i", 1) + b"\x02"
    topic = struct.pack(">h", 0) + b"\x02t" + b"\x00" + b"\x02"
    refused(MetadataResponse, head + topic + partition + bytes(4 * limit), 9, "replica_nodes claims")


def test_the_memory_of_minimal_elements_is_bounded() -> None:
    """A frame of nothing but the smallest elements is the worst that a sender can do."""
    count = 20_000
    data = (
        b"\x02g"
        + struct.pack(">i", 5)
        + b"\x02m"
        + b"\x00"
        + uvarint(count + 1)
        + b"\x01\x01\x00" * count
        + b"\0"
    )
    assert len(OffsetCommitRequest.decode(data, 9).topics) == count
    soon_enough(lambda: peak_of(lambda: OffsetCommitRequest.decode(data, 9)), 100 * len(data), "bytes")


# -------------------------------------------------------------------------------------------------- tags

FETCH_HEAD = struct.pack(">iiibii", 1, 1, 1, 0, 0, -1) + b"\x01\x01\x01"
"""A Fetch request of version 15 up to its tagged fields: no topics, none forgotten, no rack."""


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x03" + b"\x05\x02hi" + uvarint(3_000_000_000) + b"\x00" + b"\x00\x03" + b"\x03id"
    request = FetchRequest.decode(FETCH_HEAD + tags, 15)
    assert request.cluster_id == "id"


def test_the_number_of_tags_is_limited() -> None:
    limit = FetchRequest.max_elements
    tag = b"\x09\x00"
    assert FetchRequest.decode(FETCH_HEAD + uvarint(limit) + tag * limit, 15).cluster_id is None
    for count in (limit + 1, 2**31, 2**35 - 1):
        refused(FetchRequest, FETCH_HEAD + uvarint(count) + tag * (limit + 1), 15, "the tagged fields")
    refused(MetadataRequest, b"\x01\0\0\0" + uvarint(limit + 1) + tag * (limit + 1), 9, "the tagged fields")


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_a_known_tag_must_end_where_it_says(size: int) -> None:
    refused(
        FetchRequest, FETCH_HEAD + b"\x01\x00" + bytes([size]) + b"\x02x" + bytes(8), 15, "tagged field 0"
    )


def test_a_tag_may_not_reach_past_the_frame() -> None:
    refused(
        FetchRequest, FETCH_HEAD + b"\x01\x09\x05abcd", 15, "tagged field 9 claims 5 bytes, but 4 are left"
    )
    refused(FetchRequest, FETCH_HEAD + b"\x01\x00\x7f\x02x", 15, "tagged field 0 claims 127 bytes")
    refused(MetadataRequest, b"\x01\0\0\0" + b"\x01\x09\x05abcd", 9, "tagged field 9 claims 5 bytes")


# ----------------------------------------------------------------------------------- lengths and strings


def test_a_varint_has_at_most_five_bytes() -> None:
    refused(MetadataRequest, b"\xff\xff\xff\xff\xff\x01" + bytes(20), 9, "longer than five bytes")
    refused(FetchRequest, FETCH_HEAD + b"\x80\x80\x80\x80\x80\x00", 15, "longer than five bytes")
    assert MetadataRequest.decode(b"\x81\x80\x80\x80\x00" + b"\0\0\0\0", 9).topics == []


@pytest.mark.parametrize("length", [-2, -32768])
def test_only_minus_one_is_null(length: int) -> None:
    refused(SaslHandshakeRequest, struct.pack(">h", length), 1, f"negative length {length}")


def test_null_where_there_is_none() -> None:
    refused(SaslHandshakeRequest, struct.pack(">h", -1), 1, "mechanism is null")
    refused(MetadataRequest, struct.pack(">i", -1), 0, "topics is null")
    assert MetadataRequest.decode(struct.pack(">i", -1), 1).topics is None


def test_strings_are_limited_in_flexible_versions_too() -> None:
    def metadata_request(length: int) -> bytes:
        return b"\x02" + uvarint(length + 1) + b"x" * length + bytes(5)

    topics = MetadataRequest.decode(metadata_request(32767), 9).topics
    assert topics is not None
    assert len(topics[0].name or "") == 32767
    refused(MetadataRequest, metadata_request(32768), 9, "claims 32768 bytes")


def test_text_that_is_not_utf8_is_read_as_kafka_reads_it() -> None:
    assert SaslHandshakeRequest.decode(b"\0\x03a\xffb", 1).mechanism == "a\N{REPLACEMENT CHARACTER}b"


def test_refusing_a_large_frame_takes_no_time() -> None:
    """Ten million topics are refused by their count: their bytes are not even looked at."""
    taken = refused(MetadataRequest, uvarint(10_000_001) + bytes(20_000_000), 9, "topics claims")
    assert taken < 1
