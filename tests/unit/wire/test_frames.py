"""Whole frames: headers against kio's, what is refused, and that record payloads are never copied."""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from millstream.errors import CorruptMessage, MillstreamError
from millstream.wire import apis
from millstream.wire.frames import (
    RequestHeader,
    UnknownRequestError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    peek_api_key,
)
from millstream.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from millstream.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from millstream.wire.messages.groups import HeartbeatRequest, HeartbeatResponse
from millstream.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millstream.wire.schema import Api, Request, Response
from millstream.wire.slices import FileSlice
from tests.unit.wire.kio_twins import kio_type
from tests.unit.wire.message_values import filled, versions_of

EVERY_API = pytest.mark.parametrize("api", apis.all_apis().values(), ids=lambda api: api.name)
few = settings(max_examples=5, deadline=None, database=None)


def frame_of(chunks: list[Any]) -> memoryview:
    """Check the size in front, and take it away."""
    data = b"".join(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return memoryview(data)[4:]


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


# ---------------------------------------------------------------------------------------------- headers


@EVERY_API
@few
@given(correlation_id=st.integers(-(2**31), 2**31 - 1), client_id=st.none() | st.text(max_size=200))
def test_request_headers_are_those_of_kio(api: Api, correlation_id: int, client_id: str | None) -> None:
    for version in versions_of(api.request_type):
        request = filled(api.request_type, version)
        frame = frame_of(encode_request(request, version, correlation_id, client_id))
        header_type = kio_type(api.request_type, version).__header_schema__
        theirs, size = entity_reader(header_type)(bytes(frame), 0)
        assert (theirs.request_api_key, theirs.request_api_version) == (api.key, version)
        assert (theirs.correlation_id, theirs.client_id) == (correlation_id, client_id)
        assert frame[size:] == request.encode(version)
        assert written_by_kio(theirs) == frame[:size]
        assert decode_request(frame) == (RequestHeader(api.key, version, correlation_id, client_id), request)


@EVERY_API
@few
@given(correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_response_headers_are_those_of_kio(api: Api, correlation_id: int) -> None:
    for version in versions_of(api.response_type):
        response = filled(api.response_type, version)
        frame = frame_of(encode_response(response, version, correlation_id))
        header_type = kio_type(api.response_type, version).__header_schema__
        theirs, size = entity_reader(header_type)(bytes(frame), 0)
        assert theirs.correlation_id == correlation_id
        assert frame[size:] == response.encode(version)
        assert written_by_kio(theirs) == frame[:size]
        assert decode_response(api.request_type, version, frame) == (correlation_id, response)


def written_by_kio(header: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(header))(buffer, header)
    return buffer.getvalue()


@EVERY_API
def test_an_api_names_its_own_messages(api: Api) -> None:
    assert issubclass(api.request_type, Request)
    assert issubclass(api.response_type, Response)
    assert api.request_type.api is api.response_type.api is api
    assert api.request_type.__name__ == api.name + "Request"


def test_tags_in_headers_are_skipped() -> None:
    frame = bytes(frame_of(encode_request(heartbeat(), 4, 7, "me")))
    tagged = frame[:12] + b"\x01\x05\x02hi" + frame[13:]
    assert decode_request(memoryview(tagged)) == (RequestHeader(12, 4, 7, "me"), heartbeat())
    answer = bytes(frame_of(encode_response(HeartbeatResponse(error_code=0), 4, 7)))
    tagged = answer[:4] + b"\x01\x05\x02hi" + answer[5:]
    assert decode_response(HeartbeatRequest, 4, memoryview(tagged))[1] == HeartbeatResponse(error_code=0)


# -------------------------------------------------------------------------------------------- ApiVersions


def test_an_old_broker_answers_api_versions_in_version_0() -> None:
    """KIP-511: it does not know our version, so it answers in the only one that everybody knows."""
    known = [ApiVersion(api_key=18, min_version=0, max_version=2)]
    answer = ApiVersionsResponse(error_code=35, api_keys=known)
    frame = frame_of(encode_response(answer, 0, 9))
    for version in versions_of(ApiVersionsRequest):
        assert decode_response(ApiVersionsRequest, version, frame) == (9, answer)


def test_a_version_of_api_versions_that_is_too_new_is_told_with_its_header() -> None:
    frame = struct.pack(">hhih", 18, 99, 5, 2) + b"me" + b"whatever comes in version 99"
    with pytest.raises(UnknownRequestError, match="ApiVersions has versions 0 to 4") as caught:
        decode_request(memoryview(frame))
    assert caught.value.header == RequestHeader(18, 99, 5, "me")


# -------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("api_key", "version"), [(0, 2), (0, 14), (12, 5), (12, -1), (4, 0), (-1, 0), (999, 0)]
)
def test_unknown_apis_and_versions(api_key: int, version: int) -> None:
    frame = struct.pack(">hhih", api_key, version, 5, -1)
    with pytest.raises(UnknownRequestError) as caught:
        decode_request(memoryview(frame))
    assert caught.value.header == RequestHeader(api_key, version, 5, None)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.header, str(again)) == (caught.value.header, str(caught.value))


def test_frames_cut_at_every_byte() -> None:
    for version in versions_of(HeartbeatRequest):
        request = frame_of(encode_request(heartbeat(), version, 7, "me"))
        response = frame_of(encode_response(HeartbeatResponse(error_code=0), version, 7))
        for end in range(len(request)):
            with pytest.raises(CorruptMessage):
                decode_request(request[:end])
        for end in range(len(response)):
            with pytest.raises(CorruptMessage):
                decode_response(HeartbeatRequest, version, response[:end])


@pytest.mark.parametrize("length", [-2, 3, 32767])
def test_a_client_id_of_the_wrong_length(length: int) -> None:
    with pytest.raises(CorruptMessage, match="client id"):
        decode_request(memoryview(struct.pack(">hhih", 12, 0, 5, length) + b"me"))


def test_the_tags_of_a_header_are_checked() -> None:
    head = struct.pack(">hhih", 12, 4, 5, -1)
    for tags in (b"", b"\x01", b"\x01\x00\x05ab", b"\xff\xff\xff\xff\x7f" + bytes(100), b"\xff" * 9):
        with pytest.raises(CorruptMessage):
            decode_request(memoryview(head + tags))


def test_what_follows_a_message_is_ignored_as_in_kafka() -> None:
    for version in versions_of(HeartbeatRequest):
        frame = bytes(frame_of(encode_request(heartbeat(), version, 7, "me")))
        assert decode_request(memoryview(frame + b"more"))[1] == heartbeat()
        answer = bytes(frame_of(encode_response(HeartbeatResponse(error_code=3), version, 7)))
        found = decode_response(HeartbeatRequest, version, memoryview(answer + b"more"))
        assert found == (7, HeartbeatResponse(error_code=3))


def test_peeking_at_the_api() -> None:
    assert peek_api_key(memoryview(b"\x00\x01")) == 1
    assert peek_api_key(memoryview(b"\xff\xff\x00")) == -1
    with pytest.raises(CorruptMessage):
        peek_api_key(memoryview(b"\x00"))


def test_client_ids_that_do_not_fit() -> None:
    assert (
        decode_request(frame_of(encode_request(heartbeat(), 4, 1, "x" * 32767)))[0].client_id == "x" * 32767
    )
    with pytest.raises(MillstreamError, match="client id has 32768 bytes"):
        encode_request(heartbeat(), 4, 1, "x" * 32768)


def test_a_frame_that_no_size_can_tell() -> None:
    class Huge:
        def __len__(self) -> int:
            return 2**31 - 1

    with pytest.raises(MillstreamError, match="larger than the protocol allows"):
        encode_request(produce_request(Huge()), 9, 1, None)


def test_versions_that_do_not_exist() -> None:
    with pytest.raises(MillstreamError, match="HeartbeatRequest has versions 0 to 4, but not 5"):
        encode_request(heartbeat(), 5, 1, None)


# -------------------------------------------------------------------------------------------- no copies


def produce_request(*records: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def fetch_response(*records: Any) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=9, aborted_transactions=None, records=each
        )
        for index, each in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", versions_of(FetchResponse))
def test_large_payloads_leave_as_the_very_objects_that_were_given(version: int) -> None:
    large = bytes(10_000)
    payloads = [large, bytearray(large), memoryview(large), FileSlice(io.BytesIO(), 7, 20)]
    chunks = encode_response(fetch_response(None, payloads[0], b"", *payloads[1:]), version, 1)
    found = [chunk for chunk in chunks if any(chunk is payload for payload in payloads)]
    assert [id(chunk) for chunk in found] == [id(payload) for payload in payloads]
    assert int.from_bytes(chunks[0][:4], "big") == sum(map(len, chunks)) - 4


def test_small_payloads_share_a_chunk() -> None:
    """A thousand of them would otherwise take as many system calls as fit into one message."""
    payloads = [b"%d" % number for number in range(1000)]
    assert len(encode_request(produce_request(*payloads), 9, 1, None)) == 1
    large = bytes(10_000)
    mixed = encode_request(produce_request(*payloads[:5], large, *payloads[5:]), 9, 1, None)
    assert len(mixed) == 3 and mixed[1] is large
    _, request = decode_request(memoryview(b"".join(mixed))[4:])
    assert isinstance(request, ProduceRequest)
    found = [bytes(one.records) for one in request.topic_data[0].partition_data]
    assert found == [*payloads[:5], large, *payloads[5:]]


@pytest.mark.parametrize("version", versions_of(FetchResponse))
def test_payloads_are_read_as_views_of_the_frame(version: int) -> None:
    frame = frame_of(encode_response(fetch_response(b"first batch", b"", None, b"second batch"), version, 1))
    _, response = decode_response(FetchRequest, version, frame)
    assert isinstance(response, FetchResponse)
    views = [partition.records for partition in response.responses[0].partitions]
    assert views == [b"first batch", b"", None, b"second batch"]
    assert all(view is None or (isinstance(view, memoryview) and view.obj is frame.obj) for view in views)


def test_a_produced_batch_can_be_changed_in_place() -> None:
    """The broker writes offsets into the batches that it was sent: their memory is the frame's."""
    memory = bytearray(frame_of(encode_request(produce_request(b"batch"), 9, 1, None)))
    _, request = decode_request(memoryview(memory))
    assert isinstance(request, ProduceRequest)
    request.topic_data[0].partition_data[0].records[:2] = b"XY"
    assert b"XYtch" in memory


def test_a_message_without_payloads_is_one_chunk() -> None:
    assert len(encode_request(heartbeat(), 4, 1, "me")) == 1
    assert len(encode_response(fetch_response(None, b""), 12, 1)) == 1
