"""Answers that make no sense: nothing crashes, nothing goes back, nothing is asked for in a hot loop."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumer.fetching import buffers
from millstream.consumer.fetching.reasons import Retrying
from millstream.consumer.sends import Send
from millstream.errors import BrokerError, CorruptBatch, ErrorCode
from millstream.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from millstream.wire.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.wire.schema import ZERO_UUID
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import LATEST_VERSIONS, T0, T1, FakeCluster, FakeLog, topic_id
from tests.unit.consumer.fetch_world import World, values

int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.sampled_from([-1, 0, 1, 2, -(1 << 31), (1 << 31) - 1]) | st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.sampled_from([-2, -1, 0, 1, 5, -(1 << 63), (1 << 63) - 1]) | st.integers(-(1 << 63), (1 << 63) - 1)
error_codes = st.just(0) | st.sampled_from([int(code) for code in ErrorCode]) | int16


def a_log() -> FakeLog:
    log = FakeLog()
    for base in range(0, 9, 3):
        log.append(*[str(base + i).encode() for i in range(3)])
    return log


def world_of(log: FakeLog, start: int = 0, *, read_committed: bool = False) -> World:
    fetch_settings = config(auto_offset_reset="earliest", read_committed=read_committed)
    world = World(FakeCluster({T0: log}), fetch_settings)
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, start)
    return world


def reply(world: World, send: Send, *topics: FetchableTopicResponse, **fields: Any) -> None:
    world.wire.remove(send)
    world.fetcher.receive(send.token, FetchResponse(responses=list(topics), **fields), world.now_ms)


def data(index: int = 0, records: bytes | None = b"", **fields: object) -> PartitionData:
    defaults: dict[str, object] = {"error_code": 0, "high_watermark": 9, "aborted_transactions": None}
    return PartitionData(partition_index=index, records=records, **(defaults | fields))  # type: ignore[arg-type]


def topic(*partitions: PartitionData, identifier: bytes = topic_id("t")) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic="", topic_id=identifier, partitions=list(partitions))


@pytest.mark.parametrize(
    "topics",
    [
        [topic(data(1))],
        [topic(data(0), identifier=b"?" * 16)],
        [topic(data(0), identifier=ZERO_UUID)],
        [topic(data(0), data(0))],
        [topic(data(0)), topic(data(-1))],
    ],
)
def test_answers_for_what_was_not_asked_start_a_new_session(topics: list[FetchableTopicResponse]) -> None:
    log = a_log()
    world = world_of(log)
    (send,) = world.poll()
    for one in topics:
        for partition in one.partitions:
            partition.records = log.batches[1]  # were it believed, three records would be lost
    reply(world, send, *topics, session_id=4)
    assert world.take() == []
    assert world.poll() == [], "after a back-off"
    assert [record.offset for record in world.read()] == list(range(9))
    assert world.cluster.fetch_requests[0][1].session_epoch == 0


def test_an_empty_answer_to_a_full_request_is_not_asked_for_in_a_hot_loop() -> None:
    world = world_of(a_log())
    (send,) = world.poll()
    reply(world, send)
    assert world.poll() == []
    assert isinstance(world.fetcher.reasons()[T0], Retrying)
    assert len(world.read()) == 9


def test_data_before_the_offset_is_not_asked_for_in_a_hot_loop() -> None:
    log = a_log()
    world = world_of(log, start=7)
    (send,) = world.poll()
    reply(world, send, topic(data(records=log.batches[0], high_watermark=3)))
    assert world.take() == []
    assert world.positions == {T0: 7}
    assert world.poll() == []
    assert values(world.read()) == [b"7", b"8"]


def test_garbage_behind_a_batch_comes_after_its_records() -> None:
    log = a_log()
    world = world_of(log)
    (send,) = world.poll()
    reply(world, send, topic(data(records=log.batches[0] + b"\xff" * 80)))
    assert len(world.take()) == 3
    with pytest.raises(CorruptBatch, match="t-0 at offset 3"):
        world.take()
    assert len(world.read()) == 6


def test_batches_out_of_order_never_move_the_position_back() -> None:
    log = a_log()
    world = world_of(log)
    (send,) = world.poll()
    reply(world, send, topic(data(records=log.batches[1] + log.batches[0] + log.batches[2])))
    assert [record.offset for record in world.take()] == [3, 4, 5, 6, 7, 8]
    assert world.positions == {T0: 9}


@pytest.mark.parametrize("base", [-1, -(1 << 63), (1 << 63) - 1, (1 << 63) - 3])
def test_impossible_offsets_are_named(base: int) -> None:
    log = a_log()
    batch = base.to_bytes(8, "big", signed=True) + log.batches[0][8:]
    world = world_of(log)
    (send,) = world.poll()
    reply(world, send, topic(data(records=batch)))
    with pytest.raises(CorruptBatch, match="t-0 at offset 0"):
        world.take()
    assert len(world.read()) == 9


def test_a_preferred_replica_that_nobody_knows_is_not_used() -> None:
    world = world_of(a_log())
    (send,) = world.poll()
    reply(world, send, topic(data(preferred_read_replica=77)))
    assert world.poll() == []
    assert len(world.read()) == 9


def test_a_diverging_epoch_that_does_not_diverge_is_no_hot_loop() -> None:
    world = world_of(a_log(), start=3)
    (send,) = world.poll()
    reply(world, send, topic(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=5))))
    assert world.positions == {T0: 3}
    assert world.poll() == []
    assert len(world.read()) == 6


def test_a_diverging_epoch_moves_the_position_to_where_it_diverges() -> None:
    world = world_of(a_log(), start=7)
    (send,) = world.poll()
    reply(world, send, topic(data(diverging_epoch=EpochEndOffset(epoch=0, end_offset=3))))
    assert world.positions == {T0: 3}
    assert len(world.read()) == 6


def test_an_offset_that_is_no_offset_does_not_become_a_position() -> None:
    world = world_of(a_log())
    world.fetcher.positions.seek_to_end([T0])
    send = next(send for send in world.poll() if send.request_type is not FetchRequest)
    world.wire.remove(send)
    answer = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=-5)
    topics = [ListOffsetsTopicResponse(name="t", partitions=[answer, answer])]
    world.fetcher.receive(send.token, ListOffsetsResponse(topics=topics), 0)
    assert world.positions == {T0: None}
    world.settle(4)
    assert world.positions == {T0: 9}


def test_answers_to_nothing_are_ignored() -> None:
    world = world_of(a_log())
    world.fetcher.receive(12_345, FetchResponse(responses=[]), 0)
    world.fetcher.failed(12_345, ConnectionError(), 0)
    world.fetcher.set_committed(12_345, {T1: None}, 0)
    assert len(world.read()) == 9


answers = st.builds(
    PartitionData,
    partition_index=st.just(0),
    error_code=error_codes,
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    diverging_epoch=st.none() | st.builds(EpochEndOffset, epoch=int32, end_offset=int64),
    current_leader=st.none() | st.builds(LeaderIdAndEpoch, leader_id=int32, leader_epoch=int32),
    aborted_transactions=st.none()
    | st.lists(st.builds(AbortedTransaction, producer_id=int64, first_offset=int64), max_size=3),
    preferred_read_replica=st.just(-1) | int32,
    records=st.none() | st.binary(max_size=80),
)


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Three batches with a few bytes changed, and perhaps cut. Base offsets stay: no CRC covers them."""
    batches = [bytearray(batch) for batch in a_log().batches]
    for _ in range(draw(st.integers(0, 3))):
        batch = draw(st.sampled_from(batches))
        batch[draw(st.integers(8, len(batch) - 1))] = draw(st.integers(0, 255))
    whole = b"".join(batches)
    return whole[: draw(st.integers(0, len(whole)))]


@patch.object(buffers, "MAX_DECOMPRESSED_BYTES", 10_000)
@settings(max_examples=300, deadline=None)
@given(
    answer=answers,
    records=st.none() | damaged_logs(),
    session_id=int32,
    code=st.just(0) | error_codes,
    throttle=st.just(0) | int32,
    start=st.integers(0, 9),
    read_committed=st.booleans(),
    check_crcs=st.booleans(),
)
def test_no_answer_crashes_the_fetcher(
    answer: PartitionData,
    records: bytes | None,
    session_id: int,
    code: int,
    throttle: int,
    start: int,
    read_committed: bool,
    check_crcs: bool,
) -> None:
    fetch_settings = config(
        auto_offset_reset="earliest",
        read_committed=read_committed,
        check_crcs=check_crcs,
    )
    world = World(FakeCluster({T0: a_log()}), fetch_settings)
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, start)
    (send,) = world.poll()
    if records is not None:
        answer.records, answer.error_code = records, 0
    reply(world, send, topic(answer), session_id=session_id, error_code=code, throttle_time_ms=throttle)
    for _ in range(6):
        before = world.positions[T0]
        try:
            found = world.take(2)
        except (CorruptBatch, BrokerError):
            assert world.positions[T0] == before
        else:
            offsets = [record.offset for record in found]
            assert offsets == sorted(set(offsets))
            if check_crcs:  # only whole batches are believed then, and each value is its offset
                assert values(found) == [str(offset).encode() for offset in offsets]
        for send in world.poll():
            version = LATEST_VERSIONS[send.request_type]
            send.build(version).encode(version)
        world.now_ms += 1_000
        assert world.fetcher.reasons()
