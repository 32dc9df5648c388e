"""The partition of a record: by its key, as in Kafka's own producer, or the sticky one.

Records with the same key go to the same partition from any client, as all clients hash keys the same way.
Records without a key fill a batch for one partition before they move on to another: that makes a few large
batches instead of many small ones (KIP-480, KIP-794).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_WORDS = [struct.Struct(f"<{count}I").unpack_from for count in range(17)]


def murmur2(data: bytes) -> int:
    """The 32-bit Murmur2 hash with the seed that Kafka's clients share, as an unsigned number."""
    mix, mask, length = _MIX, _MASK, len(data)
    count = length >> 2
    mixed = _SEED ^ length
    for word in _WORDS[count](data) if count < len(_WORDS) else struct.unpack_from(f"<{count}I", data):
        word = word * mix & mask
        mixed = (mixed * mix ^ (word ^ word >> 24) * mix) & mask
    if length & 3:
        mixed = (mixed ^ int.from_bytes(data[count << 2 :], "little")) * mix & mask
    mixed = (mixed ^ mixed >> 13) * mix & mask
    return mixed ^ mixed >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic with ``partitions`` partitions."""
    return (murmur2(key) & _POSITIVE) % partitions


def next_sticky(partitions: int, available: Sequence[int], chance: float) -> int:
    """The partition to fill next: one of ``available`` (those with a leader), or any if there are none.

    ``chance`` is a random number from 0 up to, but not including, 1.
    """
    if available:
        return available[int(chance * len(available))]
    return int(chance * partitions)
