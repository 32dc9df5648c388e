"""``python -m tests.fuzz_decode --batches N [--seed S]``: the compiled decoder against the plain one.

Batches are made at random, damaged at random, and decoded by both: they must give the same records, or both
refuse. The loops are compiled with every index checked, so a read or write outside an array is an error.
A difference prints the seed of its batch; ``--seed`` with ``--batches 1`` repeats it. How far it is stands on
standard error every few seconds; Ctrl-C ends it with what was found so far.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Sequence

from millstream.consumer.decoding.columns import Columns, decode_compiled, decode_stretch
from millstream.consumer.decoding.records import Records
from millstream.errors import CorruptBatch
from millstream.model import TimestampType, TopicPartition
from millstream.wire.records.batch_header import BATCH_OVERHEAD, CRC_START, LOG_OVERHEAD, read_header
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.codecs import Codec
from millstream.wire.records.crc32c import crc32c
from millstream.wire.records.decode import DecoderKernels, compile_kernels

PARTITION = TopicPartition("t", 0)
MAX_BYTES = 1 << 20
TOLD_EVERY_S = 5.0
INTERRUPTED = 130
_EDGES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7E)
_INT32 = (0, 1, -1, 2, 7, 100, 2**31 - 1, -(2**31), 2**24)
_INT64 = (0, -1, 1, 2**63 - 1, -(2**63), 2**62, 1_700_000_000_000)


def random_batch(chance: random.Random) -> bytes:
    """A good batch of a few records, with every kind of field."""
    base, time_ms = chance.choice((0, 5, 2**40)), chance.choice((0, 1_700_000_000_000, 2**62))
    offset, records = base, []
    for _ in range(chance.randint(1, 6)):
        offset += chance.choice((0, 0, 0, 1, 300))
        headers = tuple(
            (chance.choice(("", "h", "name")), _field(chance))
            for _ in range(chance.choice((0, 0, 0, 1, 2, 70)))
        )
        time_ms += chance.choice((0, 1, -1, 10_000, -(2**33)))
        records.append(RecordData(offset, time_ms, _field(chance), _field(chance), headers))
        offset += 1
    return encode_batch(
        records,
        base_offset=base,
        codec=chance.choice((Codec.NONE,) * 8 + (Codec.GZIP, Codec.LZ4)),
        timestamp_type=chance.choice(tuple(TimestampType)),
        partition_leader_epoch=chance.choice((-1, 0, 7)),
        delete_horizon_ms=chance.choice((None, None, None, 5)),
    )


def _field(chance: random.Random) -> bytes | None:
    size = chance.choice((None, 0, 1, 5, 63, 64, 200))
    return None if size is None else chance.randbytes(size)


def damage(chance: random.Random, batch: bytes) -> bytes:
    """The batch after an accident or two; its length and CRC are mostly made good again."""
    body = bytearray(batch)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        _ACCIDENTS[chance.randrange(len(_ACCIDENTS))](chance, body)
    if len(body) >= BATCH_OVERHEAD and chance.random() < 0.95:
        struct.pack_into(">i", body, 8, len(body) - LOG_OVERHEAD)
    return bytes(body)


def _place(chance: random.Random, body: bytearray) -> int:
    """Mostly among the records, where the loops work."""
    low = BATCH_OVERHEAD if len(body) > BATCH_OVERHEAD and chance.random() < 0.9 else 0
    return chance.randrange(low, len(body)) if len(body) > low else 0


def _flip(chance: random.Random, body: bytearray) -> None:
    if body:
        body[_place(chance, body)] ^= 1 << chance.randrange(8)


def _edge(chance: random.Random, body: bytearray) -> None:
    if body:
        body[_place(chance, body)] = chance.choice(_EDGES)


def _long_varint(chance: random.Random, body: bytearray) -> None:
    place = _place(chance, body)
    body[place : place + 1] = bytes([0x80 | chance.randrange(128)] * chance.randint(1, 11)) + b"\x01"


def _cut(chance: random.Random, body: bytearray) -> None:
    del body[_place(chance, body) :]


def _drop(chance: random.Random, body: bytearray) -> None:
    place = _place(chance, body)
    del body[place : place + chance.randint(1, 8)]


def _insert(chance: random.Random, body: bytearray) -> None:
    place = _place(chance, body)
    body[place:place] = chance.randbytes(chance.randint(1, 8))


def _length(chance: random.Random, body: bytearray) -> None:
    """Another length for the first record, often one that is a little off."""
    if len(body) > BATCH_OVERHEAD + 1:
        body[BATCH_OVERHEAD] = (body[BATCH_OVERHEAD] + chance.choice((2, -2, 4, 126, 128))) & 0xFF


def _header_field(chance: random.Random, body: bytearray) -> None:
    if len(body) >= BATCH_OVERHEAD:
        layout, place, choices = chance.choice(
            (
                (">i", 57, _INT32),
                (">i", 23, _INT32),
                (">q", 27, _INT64),
                (">q", 35, _INT64),
                (">i", 8, _INT32),
            )
        )
        struct.pack_into(layout, body, place, chance.choice(choices))


_ACCIDENTS = (_flip, _edge, _long_varint, _cut, _drop, _insert, _length, _header_field)


def plain(batch: bytes) -> list[RecordData] | None:
    try:
        return decode_batch(batch, max_decompressed_bytes=MAX_BYTES, verify_crc=False)
    except CorruptBatch:
        return None


def compiled(kernels: DecoderKernels, batch: bytes) -> list[RecordData] | None:
    try:
        columns = decode_compiled(kernels, memoryview(batch), read_header(batch), PARTITION, MAX_BYTES)
    except CorruptBatch:  # the header and the codec are not the loops' business
        return None
    return None if columns is None else _records(columns)


def stretch(kernels: DecoderKernels, batch: bytes) -> tuple[int, list[RecordData]]:
    """Where the batches that are decoded in one go end, and their records."""
    found = decode_stretch(
        kernels,
        memoryview(batch),
        0,
        PARTITION,
        check_crcs=True,
        skip_transactional=False,
        max_payload_bytes=MAX_BYTES,
    )
    return (0, []) if found is None else (found.end, _records(found.columns))


def _records(columns: Columns) -> list[RecordData]:
    return [RecordData(r.offset, r.timestamp, r.key, r.value, r.headers) for r in Records([columns])]


def check(kernels: DecoderKernels, seed: int) -> bool:
    """Both decoders on the batch of this seed, alone and behind a good one; whether it was a good one."""
    chance = random.Random(seed)
    good = random_batch(chance)
    batch = damage(chance, good)
    expected = plain(batch)
    found = compiled(kernels, batch)
    assert found == expected, f"seed {seed}: {found} instead of {expected} from {batch.hex()}"
    _check_stretch(kernels, seed, good, batch, expected)
    return expected is not None


def _check_stretch(
    kernels: DecoderKernels, seed: int, good: bytes, batch: bytes, expected: list[RecordData] | None
) -> None:
    """In a stretch a bad batch ends it, and what is taken in is what the plain decoder gives."""
    if len(batch) >= BATCH_OVERHEAD:
        sealed = bytearray(batch)
        struct.pack_into(">I", sealed, 17, crc32c(bytes(sealed[CRC_START:])))
        struct.pack_into(">q", sealed, 0, int.from_bytes(good[:8], "big") + 1_000_000)
        batch = bytes(sealed)
        expected = plain(batch) if expected is not None else None
    end, records = stretch(kernels, good + batch)
    pieces = {
        0: [],
        len(good): plain(good),
        len(good) + len(batch): [*(plain(good) or []), *(expected or [])],
    }
    assert end in pieces and records == pieces[end], f"seed {seed}: a stretch to byte {end}: {records}"
    assert end <= len(good) or expected is not None, f"seed {seed}: a bad batch was taken in"


class Tally:
    """How many batches were compared, and how many of them were good."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._began = self._told = time.monotonic()
        self._compared = self._good = 0

    def compared(self, is_good: bool) -> None:
        """Count one, and tell from time to time how far it is."""
        self._compared += 1
        self._good += is_good
        now = time.monotonic()
        if now >= self._told + TOLD_EVERY_S:
            self._told = now
            print(f"{self} ({self._compared * 100 // self._wanted}%)", file=sys.stderr, flush=True)  # noqa: T201

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        return f"{self._compared} batches in {seconds:.0f} s: {self._good} good, no difference"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="of the first batch; the others count on")
    arguments = parser.parse_args(words)
    seed = random.SystemRandom().randrange(2**40) if arguments.seed is None else arguments.seed
    print(f"from seed {seed}", flush=True)  # noqa: T201
    tally = Tally(arguments.batches)
    try:
        print("compiling the loops", file=sys.stderr, flush=True)  # noqa: T201
        kernels = compile_kernels({"boundscheck": True})
        tally = Tally(arguments.batches)
        for number in range(arguments.batches):
            tally.compared(check(kernels, seed + number))
    except KeyboardInterrupt:
        print(f"interrupted after {tally}")  # noqa: T201
        return INTERRUPTED
    print(tally)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
