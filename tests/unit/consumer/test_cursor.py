"""A copy of a cursor is at the same place, and moves alone."""

from __future__ import annotations

from millstream.consumer.fetching.buffers import BatchCursor
from millstream.consumer.fetching.partition_state import FetchPosition
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import AbortedTransaction
from millstream.wire.records.batches import RecordData, encode_batch
from tests.unit.consumer.configs import config


def test_a_copy_has_all_that_the_cursor_has_and_moves_alone() -> None:
    batch = encode_batch([RecordData(number, 0, None, b"v") for number in range(5)], base_offset=0)
    aborted = [AbortedTransaction(producer_id=3, first_offset=9)]
    cursor = BatchCursor(TopicPartition("t", 0), FetchPosition(0), memoryview(batch), aborted, config())
    assert cursor.peek(2) is not None
    cursor.advance(2)
    twin = cursor.copy()
    for name in BatchCursor.__slots__:
        assert getattr(twin, name) is getattr(cursor, name), name
    rest = twin.peek(10)
    assert rest is not None and len(rest) == 3
    twin.advance(3)
    assert (twin.position.offset, twin.at_end) == (5, True)
    assert (cursor.position.offset, cursor.at_end) == (2, False)
