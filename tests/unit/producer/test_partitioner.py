"""Choosing partitions. The hashes are those of Kafka's own Utils.murmur2, printed by Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.producer.core.partitioner import murmur2, next_sticky, partition_for_key

VECTORS = [
    ("", 275646681, 2),
    ("a", -1563381124, 5),
    ("ab", 316155434, 0),
    ("abc", 479470107, 4),
    ("abcd", -1323649548, 5),
    ("abcde", 461995741, 4),
    ("foobar", -790332482, 0),
    ("a-little-bit-long-string", -985981536, 1),
    ("a-little-bit-longer-string", -1486304829, 0),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 3),
    ("Precision Products", 37184711, 4),
    ("ümläut", -1046324207, 4),
    ("key-123456789", 1669656999, 3),
]
"""A key, its hash as Java's signed int, and its partition of seven."""


@pytest.mark.parametrize(("key", "hashed", "partition"), VECTORS)
def test_as_java_does(key: str, hashed: int, partition: int) -> None:
    assert murmur2(key.encode()) == hashed & 0xFFFFFFFF
    assert partition_for_key(key.encode(), 7) == partition


def test_bytes_above_127() -> None:
    assert murmur2(b"\xff\x80\x00\xfe\xfd") == 526860025


@given(st.binary(max_size=200), st.integers(1, 1000))
def test_long_and_short_keys_agree_with_the_hash(key: bytes, partitions: int) -> None:
    partition = partition_for_key(key, partitions)
    assert 0 <= partition < partitions
    assert partition == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_sticky_prefers_partitions_with_a_leader() -> None:
    assert [next_sticky(4, [1, 3], chance) for chance in (0.0, 0.49, 0.5, 0.999)] == [1, 1, 3, 3]
    assert [next_sticky(4, [], chance) for chance in (0.0, 0.3, 0.6, 0.999)] == [0, 1, 2, 3]
