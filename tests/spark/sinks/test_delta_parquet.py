"""What the Parquet files of the Delta sink look like inside, and that readers get the same rows of them.

Each trick that saves time there has a row here that would be altered, lost or unreadable if it went wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.sinks.delta.parquet import files as delta_files
from millstream.spark.sinks.delta.parquet.columns import dictionary_encoded_topics
from millstream.spark.sinks.delta.parquet.files import DataFile, Shape, TableWriter
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import RAW_SCHEMA, RAW_TABLES, Driver, Step, nowhere, raw_batch, step


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is a row group."""
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 1)


def write(path: Path, *batches: pa.RecordBatch) -> list[DataFile]:
    writer = TableWriter(Shape(path, batches[0].schema), "tag")
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def without_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(6, RAW_SCHEMA.field(6), pa.nulls(batch.num_rows, RAW_SCHEMA.field(6).type))


def rows_of(path: Path, files: list[DataFile]) -> list[dict[str, Any]]:
    """As readers of Delta see them: a column that is not there is null."""
    tables = [pq.read_table(path / file.path) for file in files]
    found = [RAW_SCHEMA.empty_table(), *tables]
    rows: list[dict[str, Any]] = pa.concat_tables(found, promote_options="default").to_pylist()
    return rows


# -- headers


def test_headers_that_nobody_has_are_not_in_the_file(tmp_path: Path) -> None:
    batch = without_headers(raw_batch("orders", 0, range(5)))
    (file,) = write(tmp_path, batch)
    assert pq.read_schema(tmp_path / file.path).names == RAW_SCHEMA.names[:-1]
    assert rows_of(tmp_path, [file]) == batch.to_pylist()


def test_headers_of_one_record_are_in_the_file(tmp_path: Path) -> None:
    bare, full = without_headers(raw_batch("orders", 0, range(5))), raw_batch("orders", 0, [5])
    (file,) = write(tmp_path, bare, full)
    assert pq.read_schema(tmp_path / file.path).names == RAW_SCHEMA.names
    assert rows_of(tmp_path, [file]) == [*bare.to_pylist(), *full.to_pylist()]


@pytest.mark.usefixtures("small_groups")
def test_headers_after_a_row_group_without_any_begin_a_file(tmp_path: Path) -> None:
    batches = [raw_batch("orders", 0, [offset]) for offset in range(6)]
    for bare in (0, 1, 4):
        batches[bare] = without_headers(batches[bare])
    files = write(tmp_path, *batches)
    assert [file.rows for file in files] == [2, 4], "and that takes those without, too"
    assert rows_of(tmp_path, files) == [row for batch in batches for row in batch.to_pylist()]


def test_other_columns_stay_in_the_file_when_they_are_null(tmp_path: Path) -> None:
    """They cost next to nothing, and have statistics."""
    (file,) = write(tmp_path, raw_batch("orders", 0, range(3)))
    assert "key" in pq.read_schema(tmp_path / file.path).names


class Changing(Driver):
    """Its tasks find headers in every other step only."""

    def rows(self, step: Step, run: str) -> pa.RecordBatch:
        batch = super().rows(step, run)
        return without_headers(batch) if step.start % 4 == 0 else batch


def test_tables_with_and_without_headers_are_read_compacted_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    driver = Changing(DeltaSink(path), RAW_TABLES)
    driver.prepared()
    for start in range(0, 8, 2):
        driver.load(step(0, start, start + 2))
    headers = [{"key": "h", "value": b"1"}]
    wanted = {offset: None if offset % 4 < 2 else headers for offset in range(8)}
    assert _headers(path) == wanted
    assert driver.sink.compact(1 << 20, nowhere) > 0
    assert _headers(path) == wanted
    driver.load(step(0, 4, 7))  # from the middle of a file on, and now without
    assert _headers(path) == wanted | {6: None}


def _headers(path: Path) -> dict[int, Any]:
    rows = _scanned(path)
    found = {row["offset"]: row["headers"] for row in rows}
    assert len(found) == len(rows)
    return found


def _scanned(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return found


def test_a_file_of_nested_nulls_still_has_its_rows(tmp_path: Path) -> None:
    """Without any column it would have none: they would be gone, and the progress would go on."""
    kind = pa.list_(pa.field("element", pa.int64()))
    (file,) = write(tmp_path, pa.RecordBatch.from_pydict({"a": pa.nulls(5, kind), "b": pa.nulls(5, kind)}))
    assert file.rows == pq.read_metadata(tmp_path / file.path).num_rows == 5


def test_compaction_comes_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file without headers and one with some are joined into one, not into two again and again."""
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 2)
    driver = Changing(DeltaSink(tmp_path / "orders"), RAW_TABLES)
    driver.prepared()
    driver.load(step(0, 0, 4))
    driver.load(step(0, 4 + 1, 8))
    assert driver.sink.compact(1 << 20, nowhere) == 1
    assert len(DeltaTable(str(tmp_path / "orders")).file_uris()) == 1
    assert sorted(_headers(tmp_path / "orders")) == [0, 1, 2, 3, 5, 6, 7]


# -- encodings


def test_offsets_and_moments_are_stored_as_differences(tmp_path: Path) -> None:
    (file,) = write(tmp_path, raw_batch("orders", 3, range(20_000)))
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    for name in ("offset", "timestamp"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
        assert columns[name].total_compressed_size < 2_000
        assert columns[name].statistics.has_min_max
    assert {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(columns["topic"].encodings)
    assert "DELTA_BINARY_PACKED" not in columns["value"].encodings


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=200))
def test_any_offsets_come_back(tmp_path_factory: pytest.TempPathFactory, offsets: list[int]) -> None:
    path = tmp_path_factory.mktemp("any")
    (file,) = write(path, raw_batch("orders", 0, offsets))
    assert [row["offset"] for row in rows_of(path, [file])] == offsets


@pytest.mark.parametrize("name", ["offset", "timestamp", "topic", "partition", "_offset", "_topic"])
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["1", None, "x"]),
        pa.array([1.5, None, float("nan")]),
        pa.array([True, None, False]),
        pa.array([[1], None, []], pa.list_(pa.field("element", pa.int32()))),
        pa.array([7, None, 9], pa.int32()),
        pa.array([b"\xff", None, b""]),
    ],
    ids=lambda values: str(values.type),
)
def test_a_column_of_the_user_may_have_such_a_name(tmp_path: Path, name: str, values: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([values], names=[name])
    (file,) = write(tmp_path, batch)
    assert str(pq.read_table(tmp_path / file.path)[name].to_pylist()) == str(values.to_pylist())


def test_records_of_megabytes_among_small_ones(tmp_path: Path) -> None:
    """How many values are encoded together goes by the size of rows, so that pages stay small."""
    values = [os.urandom(3 << 20) if n % 100 == 50 else b"x" * n for n in range(400)]
    batch = raw_batch("orders", 0, range(400)).set_column(
        5, RAW_SCHEMA.field(5), pa.array(values, pa.binary())
    )
    (file,) = write(tmp_path, batch)
    assert [row["value"] for row in rows_of(tmp_path, [file])] == values


@pytest.mark.usefixtures("small_groups")
def test_pages_stay_small_when_rows_become_large(tmp_path: Path) -> None:
    """They are laid out for the rows that a file is begun with: much larger ones begin another."""
    small, large = raw_batch("orders", 0, range(5_000)), raw_batch("orders", 0, range(5_000, 7_000))
    values = pa.array([os.urandom(8_000) for _ in range(2_000)], pa.binary())
    large = large.set_column(5, RAW_SCHEMA.field(5), values)
    files = write(tmp_path, small, large, small)
    assert [file.rows for file in files] == [5_000, 7_000]


# -- topics as words


TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "b", "", "änders", None]), max_size=8), min_size=1, max_size=5
)


@given(TEXTS, st.integers(0, 3))
def test_words_mean_what_the_text_said(chunks: list[list[str | None]], cut: int) -> None:
    """Whatever lies in the chunks, also pieces of one array that begin in its middle."""
    arrays = [pa.array(chunk, pa.string()) for chunk in chunks]
    pieces = [piece for array in arrays for piece in (array, array.slice(cut), array.slice(0, cut))]
    table = pa.table({"topic": pa.chunked_array(pieces, pa.string()), "n": pa.array(range(_rows(pieces)))})
    found = dictionary_encoded_topics(table)
    assert found["topic"].to_pylist() == table["topic"].to_pylist()
    assert found["n"].equals(table["n"])


def _rows(pieces: list[pa.Array]) -> int:
    return sum(map(len, pieces))


def test_pieces_of_one_array_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = pa.repeat(pa.scalar("orders"), 1_000)
    found = dictionary_encoded_topics(
        pa.table({"_topic": pa.chunked_array([kept.slice(0, 900), kept.slice(0, 1_000)])})
    )
    places = [chunk.indices.buffers()[1].address for chunk in found["_topic"].chunks]
    assert len(set(places)) == 1


def test_two_topics_in_one_file(tmp_path: Path) -> None:
    batches = [raw_batch(topic, 0, range(3)) for topic in ("orders", "returns", "orders")]
    (file,) = write(tmp_path, *batches)
    assert rows_of(tmp_path, [file]) == [row for batch in batches for row in batch.to_pylist()]
    assert '"topic":"orders"' in file.stats and '"topic":"returns"' in file.stats
