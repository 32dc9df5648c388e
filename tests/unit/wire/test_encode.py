"""The compiled encoder: byte for byte what the plain one writes, whatever the records are."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.producer.core.columns import (
    RecordColumns,
    column_of,
    encode_lists,
    headers_of,
    no_fields,
    row_numbers,
)
from millstream.producer.core.partitioner import murmur2, partition_for_key
from millstream.producer.core.times import Times
from millstream.wire.records.batch_header import BATCH_OVERHEAD, write_header
from millstream.wire.records.batches import RecordData, decode_batch, encode_batch
from millstream.wire.records.encode import EncoderKernels, compile_kernels, expand, load

FIELD = st.none() | st.binary(max_size=70) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 9000])
HEADERS = st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3, unique_by=repr
)
RECORDS = st.lists(st.tuples(FIELD, FIELD, st.integers(0, 2**50), HEADERS), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def kernels() -> EncoderKernels:
    return load()


@pytest.fixture(scope="module")
def checking() -> EncoderKernels:
    """The same loops, which raise where they would read or write outside an array."""
    return compile_kernels({"boundscheck": True})


@dataclass
class Lists:
    """The records of a batch as ``Producer.send`` collects them."""

    keys: list[bytes | None] | None
    values: list[bytes | None]
    times: Times
    headers: dict[int, Any]


def lists_of(records: list[Any]) -> Lists:
    times = Times()
    for row, (_, _, timestamp, _) in enumerate(records):
        times.change(row, timestamp)
    keys = [key for key, _, _, _ in records]
    headers = {row: headers for row, (*_, headers) in enumerate(records) if headers}
    return Lists(None if set(keys) == {None} else keys, [value for _, value, _, _ in records], times, headers)


def by_lists(kernels: EncoderKernels, *batches: list[Any]) -> list[bytes]:
    """The batches as ``Producer.send`` makes them."""
    lists = [lists_of(records) for records in batches]
    out, ends = encode_lists(kernels, lists)
    found = []
    for one, start, end in zip(lists, [0, *ends], ends, strict=False):
        batch = out[start:end]
        write_header(
            batch,
            attributes=0,
            base_timestamp=one.times.span[0],
            max_timestamp=one.times.span[1],
            producer_id=5,
            producer_epoch=1,
            base_sequence=7,
            record_count=len(one.values),
        )
        found.append(batch.tobytes())
    return found


def plainly(records: list[Any]) -> bytes:
    data = [
        RecordData(row, timestamp, key, value, tuple(headers))
        for row, (key, value, timestamp, headers) in enumerate(records)
    ]
    return encode_batch(data, producer_id=5, producer_epoch=1, base_sequence=7)


@settings(deadline=None)
@given(RECORDS)
def test_the_same_bytes_as_the_plain_encoder(checking: EncoderKernels, records: list[Any]) -> None:
    assert by_lists(checking, records) == [plainly(records)]


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_several_batches_at_once(checking: EncoderKernels, batches: list[list[Any]]) -> None:
    assert by_lists(checking, *batches) == [plainly(records) for records in batches]


@settings(deadline=None)
@given(RECORDS)
def test_the_plain_decoder_reads_what_it_wrote(kernels: EncoderKernels, records: list[Any]) -> None:
    read = decode_batch(by_lists(kernels, records)[0], max_decompressed_bytes=1 << 24)
    assert [(one.key, one.value, one.timestamp, list(one.headers)) for one in read] == records


def test_thousands_of_records_and_times_that_run_back(kernels: EncoderKernels) -> None:
    records: list[Any] = [(None, b"%d" % n, 2**40 - n * 10**6, []) for n in range(20_000)]
    assert by_lists(kernels, records) == [plainly(records)]


@settings(deadline=None)
@given(RECORDS, st.integers(0, 3000), st.data())
def test_it_stops_where_the_next_record_does_not_fit(
    checking: EncoderKernels, records: list[Any], room: int, data: st.DataObject
) -> None:
    """Any rows in any order, in pieces: the records of all pieces together are the rows."""
    columns = RecordColumns(
        column_of([key for key, *_ in records]),
        column_of([value for _, value, *_ in records]),
        headers_of({row: headers for row, (*_, headers) in enumerate(records) if headers}, len(records)),
        np.array([timestamp for _, _, timestamp, _ in records], np.int64),
    )
    order = data.draw(st.permutations(range(len(records))))
    rows, place, found = np.array(order, np.int64), 0, []
    while place < len(rows):
        out = np.empty(BATCH_OVERHEAD + room, np.uint8)
        base = int(columns.timestamps[rows[place]])
        end, position, _ = columns.write(checking, rows, place, out, BATCH_OVERHEAD, 0, (base, base))
        assert position <= len(out)
        expected = plainly([records[row] for row in order[place:end]]) if end > place else b""
        assert out[BATCH_OVERHEAD:position].tobytes() == expected[BATCH_OVERHEAD:]
        found += order[place:end]
        room = room + 20_000 if end == place else room
        place = end
    assert found == order


# -- partitions


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=50), st.integers(1, 1000))
def test_keys_hash_as_in_java(checking: EncoderKernels, keys: list[bytes | None], partitions: int) -> None:
    """The vectors that Java printed are in test_partitioner; here is what agrees with them."""
    chosen = np.full(len(keys), -1, np.int64)
    unchosen = checking.hash_keys(*column_of(keys).arrays, partitions, chosen)
    assert unchosen == keys.count(None)
    assert chosen.tolist() == [-1 if key is None else partition_for_key(key, partitions) for key in keys]


def test_hashes_of_all_32_bits(kernels: EncoderKernels) -> None:
    keys: list[bytes | None] = [
        b"",
        b"a",
        b"ab",
        b"abc",
        b"abcd",
        b"foobar",
        b"\xff\x80\x00\xfe\xfd",
        b"k" * 1001,
    ]
    chosen = np.full(len(keys), -1, np.int64)
    kernels.hash_keys(*column_of(keys).arrays, 1 << 31, chosen)
    assert chosen.tolist() == [murmur2(key) & 0x7FFFFFFF for key in keys if key is not None]


def test_a_partition_that_was_chosen_is_kept(kernels: EncoderKernels) -> None:
    chosen = np.array([5, -1, 0, -1], np.int64)
    assert kernels.hash_keys(*column_of([b"a", b"a", None, None]).arrays, 7, chosen) == 1
    assert chosen.tolist() == [5, partition_for_key(b"a", 7), 0, -1]


@settings(deadline=None)
@given(st.lists(st.integers(-1, 4), max_size=60))
def test_rows_are_grouped_in_their_order(checking: EncoderKernels, partitions: list[int]) -> None:
    ends, order = np.zeros(6, np.int64), np.empty(len(partitions), np.int64)
    assert checking.group_rows(np.array(partitions, np.int64), ends, order) == len(partitions)
    groups = [group.tolist() for group in np.split(order, ends[:-1])]
    wanted = [[row for row, one in enumerate(partitions) if one == n] for n in (0, 1, 2, 3, 4, -1)]
    assert groups == wanted


# -- the parts


def test_every_macro_is_written_out() -> None:
    text = expand(
        "def f(out, at, size, length):\n    COUNT(size)\n    PUT(length)\n    COPY(data, starts, size)\n"
    )
    assert not {"COUNT", "PUT", "COPY", "VALUE", "SIZE", "DATA"} & set(text.replace("(", " ").split())
    compile(text, "f", "exec")


def test_shared_arrays_cannot_be_written() -> None:
    for array in (row_numbers(10), no_fields(10).sizes, no_fields(10).starts):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert row_numbers(5000).tolist() == list(range(5000))
    assert no_fields(5000).sizes.tolist() == [-1] * 5000


def test_it_works_where_no_compiled_code_can_be_kept(tmp_path: Path) -> None:
    """A cache directory below a file cannot be made, whoever runs this."""
    obstacle = tmp_path / "file"
    obstacle.touch()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(obstacle / "cache")}
    code = (
        "from millstream.wire.records import encode, jit; "
        "print(jit.compile_loop(encode._GROUP_ROWS, encode.__file__, 'encode', None, {'cache': True}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "group_rows" in done.stdout
