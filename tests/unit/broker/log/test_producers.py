"""Idempotent producers: a batch sent twice is kept once, and a missing one is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.broker.log.partition import Appended, PartitionLog
from millstream.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    OutOfOrderSequenceNumberError,
)
from tests.unit.broker.log.support import NOW, make_batch, open_log

MAX_SEQUENCE = 2**31 - 1


def send(
    log: PartitionLog, sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7, now_ms: int = NOW
) -> Appended:
    return log.append(batch(sequence, count=count, epoch=epoch, producer=producer), now_ms)


def batch(sequence: int, *, count: int = 1, epoch: int = 0, producer: int = 7) -> bytes:
    options: dict[str, Any] = {
        "producer_id": producer,
        "producer_epoch": epoch,
        "base_sequence": sequence,
    }
    return make_batch([b"x"] * count, **options)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_log(tmp_path / "t-0")


def test_the_last_five_batches_are_recognised(log: PartitionLog) -> None:
    sent = [send(log, 3 * number, count=3) for number in range(7)]
    for number in range(2, 7):
        again = send(log, 3 * number, count=3)
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (sent[number].base_offset, sent[number].last_offset)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(log, 3, count=3)
    assert log.end_offset == 21


def test_the_same_sequence_with_another_length_is_no_duplicate(log: PartitionLog) -> None:
    send(log, 0, count=3)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(log, 0, count=2)


def test_a_gap_is_refused(log: PartitionLog) -> None:
    send(log, 0, count=2)
    with pytest.raises(OutOfOrderSequenceNumberError, match="sent sequence 3 after 1"):
        send(log, 3)
    send(log, 2)


def test_an_unknown_producer_may_begin_anywhere(log: PartitionLog) -> None:
    send(log, 40)
    send(log, 41)


def test_epochs_of_producers(log: PartitionLog) -> None:
    send(log, 0, epoch=3)
    with pytest.raises(InvalidProducerEpochError):
        send(log, 1, epoch=2)
    with pytest.raises(OutOfOrderSequenceNumberError, match="begins epoch 4 with sequence 1"):
        send(log, 1, epoch=4)
    assert not send(log, 0, epoch=4).duplicate
    with pytest.raises(InvalidProducerEpochError):
        send(log, 0, epoch=3)
    send(log, 1, epoch=4)


def test_sequences_wrap(log: PartitionLog) -> None:
    send(log, MAX_SEQUENCE - 2, count=2)
    send(log, MAX_SEQUENCE)
    send(log, 0)
    assert send(log, MAX_SEQUENCE).duplicate
    send(log, 1)


def test_a_batch_that_wraps_inside(log: PartitionLog) -> None:
    send(log, MAX_SEQUENCE, count=3)
    assert send(log, MAX_SEQUENCE, count=3).duplicate
    send(log, 2)


def test_producers_do_not_disturb_each_other(log: PartitionLog) -> None:
    for number in range(3):
        send(log, number, producer=1)
        send(log, number * 2, producer=2, count=2)
    log.append(make_batch(), NOW)
    assert send(log, 2, producer=1).duplicate
    assert log.producer_count == 2


def test_batches_of_one_append_may_follow_one_another(log: PartitionLog) -> None:
    assert log.append(batch(0) + batch(1) + batch(2, epoch=0), NOW).last_offset == 2
    with pytest.raises(OutOfOrderSequenceNumberError):
        log.append(batch(3) + batch(5), NOW)
    assert log.end_offset == 3
    again = log.append(batch(1) + batch(2), NOW)
    assert (again.duplicate, again.base_offset, again.last_offset) == (True, 1, 2)
    with pytest.raises(InvalidRecordError, match="some of these batches"):
        log.append(batch(2) + batch(3), NOW)
    assert send(log, 3).base_offset == 3


@pytest.mark.parametrize("field", ["producer_epoch", "base_sequence"])
def test_epoch_and_sequence_are_needed(log: PartitionLog, field: str) -> None:
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, field: -1}
    with pytest.raises(InvalidRecordError):
        log.append(make_batch(**fields), NOW)


def test_idle_producers_are_forgotten(log: PartitionLog) -> None:
    day = log.config.producer_id_expiration_ms
    send(log, 0, producer=1)
    send(log, 0, producer=2, now_ms=NOW + 10)
    assert log.maintain(NOW + day - 1).expired_producers == 0
    assert log.maintain(NOW + day).expired_producers == 1
    assert not send(log, 0, producer=1).duplicate
    assert send(log, 0, producer=2).duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 250])
def test_producers_are_known_after_a_restart(tmp_path: Path, clean: bool, segment_bytes: int) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=segment_bytes)
    for number in range(8):
        send(log, number)
        send(log, number, producer=8, epoch=number, count=1) if number == 0 else None
    log.close(clean=clean)
    again = open_log(tmp_path / "t-0", clean=clean, segment_bytes=segment_bytes)
    for number in range(3, 8):
        found = send(again, number)
        assert found.duplicate and found.base_offset == (number + 1 if number else 0)
    with pytest.raises(OutOfOrderSequenceNumberError):
        send(again, 9)
    assert send(again, 0, producer=8).duplicate
    assert not send(again, 8).duplicate


def test_a_duplicate_tells_the_time_of_the_first(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    send(log, 0)
    assert send(log, 0, now_ms=NOW + 50).log_append_time_ms == NOW
    log.close(clean=False)
    again = open_log(tmp_path / "t-0", clean=False, message_timestamp_type="LogAppendTime")
    assert send(again, 0, now_ms=NOW + 50).log_append_time_ms == NOW
