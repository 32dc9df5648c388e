"""Batches as a faulty or hostile client could send them: damaged at random, with a CRC that is right."""

from __future__ import annotations

import random
import struct
import time

from millstream.wire.records.batch_header import BATCH_OVERHEAD, CODEC_MASK, CRC_START, LOG_OVERHEAD
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.records.codecs import Codec, compress
from millstream.wire.records.crc32c import crc32c
from tests import fuzz_decode

_NAMES = ("", "h", "name", "größe")


def mutated(seed: int) -> bytes:
    """A batch of a few records, damaged in most cases before it was compressed."""
    chance = random.Random(seed)
    plain = good_batch(chance)
    if chance.random() < 0.85:
        plain = fuzz_decode.damage(chance, plain)
    return sealed(plain, chance.choice((Codec.NONE,) * 4 + tuple(Codec)))


def good_batch(chance: random.Random) -> bytes:
    """Records with every kind of field, as a client sends them."""
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(
        [
            RecordData(
                offset,
                now_ms - chance.randrange(1000),
                _field(chance),
                _field(chance),
                tuple((chance.choice(_NAMES), _field(chance)) for _ in range(chance.choice((0, 0, 1, 3)))),
            )
            for offset in range(chance.randint(1, 5))
        ]
    )


def sealed(batch: bytes, codec: Codec = Codec.NONE) -> bytes:
    """The batch with its records compressed, and with a length and a CRC that are right."""
    if len(batch) < BATCH_OVERHEAD:
        return batch
    body = bytearray(batch[:BATCH_OVERHEAD] + compress(codec, batch[BATCH_OVERHEAD:]))
    if codec is not Codec.NONE:
        body[CRC_START + 1] = body[CRC_START + 1] & ~CODEC_MASK | codec
    struct.pack_into(">i", body, LOG_OVERHEAD - 4, len(body) - LOG_OVERHEAD)
    struct.pack_into(">I", body, CRC_START - 4, crc32c(bytes(body[CRC_START:])))
    return bytes(body)


def _field(chance: random.Random) -> bytes | None:
    size = chance.choice((None, 0, 1, 5, 63, 64, 200))
    return None if size is None else chance.randbytes(size)
