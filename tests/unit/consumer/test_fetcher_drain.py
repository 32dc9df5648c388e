"""From fetched bytes to records: gaps, transactions, deserializers, damage, and work on two threads."""

from __future__ import annotations

import pytest

from millstream.config import ConsumerConfig
from millstream.consumer.fetching import buffers
from millstream.consumer.fetching.drain import RAW, Deserializers, drain
from millstream.errors import CorruptBatch, DeserializationError, UnsupportedMagic
from millstream.model import Header, OffsetAndMetadata, TimestampType, TopicPartition
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import ControlType, RecordData
from millstream.wire.records.codecs import Codec
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog
from tests.unit.consumer.fetch_world import World, take, values

SETTINGS = config(auto_offset_reset="earliest")
COMMITTED = config(auto_offset_reset="earliest", isolation_level="read_committed")


def world_of(log: FakeLog, settings: ConsumerConfig = SETTINGS, start: int = 0, **others: FakeLog) -> World:
    logs: dict[TopicPartition, FakeLog] = {
        T0: log,
        **{TopicPartition(name, 0): one for name, one in others.items()},
    }
    world = World(FakeCluster(logs), settings)
    world.fetcher.positions.assign(logs)
    for partition in logs:
        world.fetcher.positions.seek(partition, start if partition == T0 else 0)
    return world


# -- offsets


def test_reading_starts_inside_a_batch() -> None:
    log = FakeLog()
    log.append(b"0", b"1", b"2")
    log.append(b"3")
    assert values(world_of(log, start=2).read()) == [b"2", b"3"]


def test_compaction_gaps_are_passed_over() -> None:
    log = FakeLog()
    log.append_records([RecordData(2, 0, None, b"2"), RecordData(5, 0, None, b"5")], gap_after=4)
    assert log.end_offset == 10
    log.append(b"10")
    world = world_of(log)
    world.settle(1)
    assert values(world.take(1)) == [b"2"]
    assert world.positions == {T0: 3}
    assert values(world.take(1)) == [b"5"]
    assert world.positions == {T0: 10}, "behind the gap at the end of the batch"
    assert values(world.take(1)) == [b"10"]


def test_a_position_in_a_gap_at_the_end_of_a_batch_goes_on_behind_it() -> None:
    log = FakeLog()
    log.append_records([RecordData(0, 0, None, b"0")], gap_after=9)
    log.append(b"10")
    assert values(world_of(log, start=5).read()) == [b"10"]


def test_records_carry_all_there_is() -> None:
    log = FakeLog(epochs=[(6, 0)])
    headers: tuple[Header, ...] = (("a", b"1"),)
    log.append_records(
        [RecordData(0, 1_234, b"k", b"v", headers)], timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    (record,) = world_of(log).read()
    assert record == (
        "t", 0, 0, 1_234, TimestampType.LOG_APPEND_TIME, b"k", b"v", headers, 6,
    )  # fmt: skip


def test_the_position_remembers_the_epoch_of_what_was_read() -> None:
    log = FakeLog(epochs=[(6, 0)])
    log.append(b"a", b"b")
    world = world_of(log)
    world.settle(1)
    world.take(1)
    assert world.fetcher.positions.consumed() == {T0: OffsetAndMetadata(1, "", 6)}


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec: Codec) -> None:
    log = FakeLog()
    log.append(*[b"hello"] * 50, codec=codec)
    assert values(world_of(log).read()) == [b"hello"] * 50


def test_a_batch_cut_by_the_end_of_the_response_is_fetched_again() -> None:
    log = FakeLog()
    for _ in range(10):
        log.append(b"x" * 40)
    size = len(log.batches[0])
    world = world_of(log, config(max_partition_fetch_bytes=size * 2 + 30))
    world.poll()
    world.deliver(world.wire[0])
    assert len(world.take()) == 2
    assert [record.offset for record in world.read(30)] == list(range(2, 10))


# -- transactions


def transactional_log() -> FakeLog:
    log = FakeLog()
    log.append(b"plain")  # 0
    log.append(b"aborted 1", b"aborted 2", producer_id=7, producer_epoch=0, transactional=True)  # 1, 2
    log.append(b"committed", producer_id=8, producer_epoch=0, transactional=True)  # 3
    log.append(b"aborted 3", producer_id=7, producer_epoch=0, transactional=True)  # 4
    log.append_marker(7, ControlType.ABORT)  # 5
    log.append(b"idempotent", producer_id=7, producer_epoch=0)  # 6
    log.append(b"committed later", producer_id=7, producer_epoch=0, transactional=True)  # 7
    log.append_marker(8, ControlType.COMMIT)  # 8
    log.append_marker(7, ControlType.COMMIT)  # 9
    log.aborted = [(7, 1, 5)]
    return log


def test_read_committed_leaves_out_what_was_aborted() -> None:
    world = world_of(transactional_log(), COMMITTED)
    assert values(world.read()) == [b"plain", b"committed", b"idempotent", b"committed later"]
    assert world.positions == {T0: 10}, "also over the markers at the end"


def test_read_committed_from_inside_an_aborted_transaction() -> None:
    world = world_of(transactional_log(), COMMITTED, start=4)
    assert values(world.read()) == [b"idempotent", b"committed later"]


def test_read_uncommitted_shows_everything_but_markers() -> None:
    world = world_of(transactional_log())
    assert len(world.read()) == 7
    assert world.positions == {T0: 10}


def test_several_aborted_transactions_of_one_producer() -> None:
    log = FakeLog()
    for keep in (False, True, False):
        log.append(b"kept" if keep else b"dropped", producer_id=3, producer_epoch=0, transactional=True)
        log.append_marker(3, ControlType.COMMIT if keep else ControlType.ABORT)
    log.aborted = [(3, 4, 5), (3, 0, 1)]
    assert values(world_of(log, COMMITTED).read()) == [b"kept"]


def test_a_batch_outside_of_transactions_is_never_aborted() -> None:
    log = FakeLog()
    log.append(b"aborted", producer_id=3, producer_epoch=0, transactional=True)
    log.append(b"plain", producer_id=3, producer_epoch=0)
    log.append_marker(3, ControlType.ABORT)
    log.aborted = [(3, 0, 2)]
    assert values(world_of(log, COMMITTED).read()) == [b"plain"]


def test_markers_alone_move_the_position() -> None:
    log = FakeLog()
    log.append_marker(3, ControlType.COMMIT)
    log.append_marker(3, ControlType.ABORT)
    world = world_of(log, COMMITTED)
    world.settle(1)
    assert world.fetcher.ready()
    assert world.take() == []
    assert world.positions == {T0: 2}


# -- deserializers

NUMBERS = Deserializers(value=int)


def log_with(*raw: bytes | None) -> FakeLog:
    log = FakeLog()
    log.append(*raw)
    return log


def test_values_and_keys_are_deserialized_and_nulls_stay() -> None:
    world = world_of(log_with(b"1", None, b"3"))
    world.settle(1)
    found = take(world.fetcher, 10, 0, Deserializers(key=bytes.decode, value=int))
    assert [(record.key, record.value) for record in found] == [("k0", 1), ("k1", None), ("k2", 3)]


def test_bytes_need_no_deserializer() -> None:
    assert Deserializers.of(bytes, bytes) == RAW
    assert Deserializers.of(None, int) == NUMBERS


def test_bad_bytes_come_after_the_good_records_and_can_be_passed() -> None:
    world = world_of(log_with(b"0", b"1", b"bad", b"3"))
    world.settle(1)
    assert [record.value for record in take(world.fetcher, 10, 0, NUMBERS)] == [0, 1]
    assert world.positions == {T0: 2}
    for _ in range(2):
        with pytest.raises(DeserializationError) as caught:
            take(world.fetcher, 10, 0, NUMBERS)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.raw) == ("t", 0, 2, b"bad")
        assert isinstance(error.__cause__, ValueError)
        assert "value" in str(error) and "t-0" in str(error)
        assert world.positions == {T0: 2}, "the position stays before it"
        world.settle(1)
    world.fetcher.positions.seek(T0, 3)
    world.settle(2)
    assert [record.value for record in take(world.fetcher, 10, 0, NUMBERS)] == [3]


def test_a_bad_key_before_a_bad_value() -> None:
    log = FakeLog()
    log.append_records(
        [
            RecordData(0, 0, b"1", b"1"),
            RecordData(1, 0, b"bad", b"1"),
            RecordData(2, 0, b"1", b"bad"),
        ]
    )
    world = world_of(log)
    world.settle(1)
    both = Deserializers(int, int)
    assert len(take(world.fetcher, 10, 0, both)) == 1
    with pytest.raises(DeserializationError, match="key of t-0 at offset 1"):
        take(world.fetcher, 10, 0, both)
    world.fetcher.positions.seek(T0, 2)
    world.settle(2)
    with pytest.raises(DeserializationError, match="value of t-0 at offset 2"):
        take(world.fetcher, 10, 0, both)


def test_a_bad_value_before_a_bad_key() -> None:
    log = FakeLog()
    log.append_records([RecordData(0, 0, b"1", b"bad"), RecordData(1, 0, b"bad", b"1")])
    world = world_of(log)
    world.settle(1)
    with pytest.raises(DeserializationError, match="value of t-0 at offset 0"):
        take(world.fetcher, 10, 0, Deserializers(int, int))


def test_other_partitions_go_on_beside_a_bad_record() -> None:
    world = world_of(log_with(b"bad"), u=log_with(b"1", b"2"))
    world.settle(1)
    seen: list[object] = []
    errors = 0
    for _ in range(6):
        try:
            seen += [record.value for record in take(world.fetcher, 1, 0, NUMBERS)]
        except DeserializationError:
            errors += 1
    assert seen == [1, 2]
    assert errors >= 2, "and it is not forgotten"


def test_an_interrupted_deserializer_loses_nothing() -> None:
    world = world_of(log_with(b"0", b"1", b"2"))
    world.settle(1)

    def interrupted(raw: bytes) -> object:
        if raw == b"1":
            raise KeyboardInterrupt
        return raw

    with pytest.raises(KeyboardInterrupt):
        take(world.fetcher, 10, 0, Deserializers(value=interrupted))
    assert world.positions == {T0: 0}
    assert values(world.take()) == [b"0", b"1", b"2"]


# -- damage


def damaged(log: FakeLog, batch: int, byte: int = -1) -> None:
    data = bytearray(log.batches[batch])
    data[byte] ^= 0x40
    log.batches[batch] = bytes(data)


def test_a_damaged_batch_comes_after_the_good_ones_and_is_named() -> None:
    log = FakeLog()
    log.append(b"0", b"1")
    log.append(b"2", b"3")
    log.append(b"4")
    damaged(log, 1)
    world = world_of(log)
    world.settle(1)
    assert values(world.take()) == [b"0", b"1"]
    for _ in range(2):
        world.settle(2)
        with pytest.raises(CorruptBatch, match=r"t-0 at offset 2: CRC.*seek to 4 to go past it"):
            world.take()
        assert world.positions == {T0: 2}
    world.fetcher.positions.seek(T0, 4)
    assert values(world.read()) == [b"4"]


def test_bytes_that_were_damaged_on_their_way_are_fetched_again() -> None:
    log = FakeLog()
    log.append(b"0")
    good = list(log.batches)
    damaged(log, 0)
    world = world_of(log)
    world.settle(1)
    log.batches = good
    with pytest.raises(CorruptBatch):
        world.take()
    assert values(world.read()) == [b"0"]


def test_without_crc_checks_a_wrong_crc_is_not_looked_at() -> None:
    log = FakeLog()
    log.append(b"0")
    damaged(log, 0, byte=-2)  # the value
    world = world_of(log, config(check_crcs=False))
    assert values(world.read()) == [b"p"]


def test_a_header_that_lies_about_its_end_loses_nothing() -> None:
    """A smaller last offset would make reading skip the batch, were the CRC not checked first."""
    log = FakeLog()
    log.append(b"0", b"1", b"2", b"3")
    damaged(log, 0, byte=26)  # 3 becomes 67
    world = world_of(log, start=1)
    world.settle(1)
    with pytest.raises(CorruptBatch, match="t-0 at offset 1"):
        world.take()
    assert world.positions == {T0: 1}


def test_an_older_record_format_is_named() -> None:
    log = FakeLog()
    log.append(b"0")
    data = bytearray(log.batches[0])
    data[16] = 1
    world = world_of(log)
    world.poll()
    send = world.wire[0]
    response = world.cluster.answer(send)
    response.responses[0].partitions[0].records = bytes(data)  # type: ignore[attr-defined]
    world.fetcher.receive(send.token, response, 0)
    with pytest.raises(UnsupportedMagic, match="t-0 at offset 0: record format 1"):
        world.take()


@pytest.mark.parametrize("rest", [1, 11, 12, 60, 61, 80])
def test_a_response_without_a_whole_batch_is_named(rest: int) -> None:
    log = FakeLog()
    log.append(b"x" * 100)
    whole = log.batches[0]
    world = world_of(log)
    world.poll()
    send = world.wire[0]
    response = world.cluster.answer(send)
    response.responses[0].partitions[0].records = whole[:rest]  # type: ignore[attr-defined]
    world.fetcher.receive(send.token, response, 0)
    with pytest.raises(CorruptBatch, match="t-0 at offset 0"):
        world.take()
    assert world.positions == {T0: 0}


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MAX_DECOMPRESSED_BYTES", 100_000)
    log = FakeLog()
    log.append(bytes(1_000_000), codec=Codec.GZIP)
    world = world_of(log)
    world.settle(1)
    with pytest.raises(CorruptBatch, match="t-0 at offset 0"):
        world.take()


# -- two threads


def test_what_was_drawn_before_a_seek_does_not_count() -> None:
    world = world_of(log_with(b"0", b"1"))
    world.settle(1)
    handout = drain(world.fetcher.begin_take(), 10, RAW)
    world.fetcher.positions.seek(T0, 1)
    assert list(world.fetcher.finish_take(handout, 0)) == []
    assert world.positions == {T0: 1}
    assert values(world.read()) == [b"1"]


def test_an_error_that_was_drawn_before_a_seek_does_not_count() -> None:
    world = world_of(log_with(b"bad", b"1"))
    world.settle(1)
    handout = drain(world.fetcher.begin_take(), 10, NUMBERS)
    assert handout.error is not None
    world.fetcher.positions.seek(T0, 1)
    assert list(world.fetcher.finish_take(handout, 0)) == []


def test_what_was_drawn_but_not_accepted_is_drawn_again() -> None:
    world = world_of(log_with(b"0", b"1"))
    world.settle(1)
    drain(world.fetcher.begin_take(), 1, RAW)
    assert values(world.take(1)) == [b"0"]
    assert values(world.take(1)) == [b"1"]


def test_what_was_drawn_twice_counts_once() -> None:
    world = world_of(log_with(b"0", b"1", b"2"))
    world.settle(1)
    early = drain(world.fetcher.begin_take(), 1, RAW)
    assert values(world.take(2)) == [b"0", b"1"]
    assert list(world.fetcher.finish_take(early, 0)) == []
    assert world.positions == {T0: 2}
    assert values(world.read()) == [b"2"]


def test_only_the_partitions_that_moved_meanwhile_are_left_out() -> None:
    world = world_of(log_with(b"0"), u=log_with(b"1"))
    world.settle(1)
    handout = drain(world.fetcher.begin_take(), 10, RAW)
    world.fetcher.positions.revoke([T0])
    assert values(list(world.fetcher.finish_take(handout, 0))) == [b"1"]
    assert world.fetcher.positions.position(U0) == 1
    assert T1 not in world.fetcher.positions.assignment()


def test_headers_of_the_test_log_make_sense() -> None:
    log = FakeLog()
    log.append(b"a", gap_after=3)
    assert read_header(log.batches[0]).next_offset == 4
