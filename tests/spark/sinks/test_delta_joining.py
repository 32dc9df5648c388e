"""Small files joined, again and again: what was tried is over, and rows are not copied for ever."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.delta import upkeep as delta_upkeep
from millstream.spark.sinks.delta.parquet import files as delta_files
from millstream.spark.sinks.delta.parquet.files import DataFile
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import (
    NOON,
    RAW_SCHEMA,
    RAW_TABLES,
    TOPIC,
    Driver,
    Step,
    nowhere,
    offsets,
    step,
)

TARGET = 1 << 20


class Sized(Driver):
    """A driver whose records have values of ``size`` bytes that cannot be compressed."""

    size = 100

    def rows(self, step: Step, run: str) -> pa.RecordBatch:
        noise = random.Random(step.start)
        rows = [
            {"topic": TOPIC, "partition": 0, "offset": offset, "timestamp": NOON, "headers": None}
            | {"key": None, "value": noise.randbytes(self.size)}
            for offset in step.good
        ]
        return pa.RecordBatch.from_pylist(rows, RAW_SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


class Written:
    """The files that joins have written."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.files: list[DataFile] = []
        write = delta_upkeep._write_joined

        def watched(*args: Any) -> list[DataFile]:
            made = write(*args)
            self.files += made
            return made

        patch.setattr(delta_upkeep, "_write_joined", watched)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group has a hundred rows: what is said of large files is true of small ones."""
    monkeypatch.setattr(delta_files, "_GROUP_ROWS", 100)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    return Written(monkeypatch)


def stored(path: Path) -> list[int]:
    return offsets(pa.table(DeltaTable(str(path)).scan()).to_pylist())


@pytest.mark.usefixtures("small_groups")
def test_rows_of_very_different_sizes_come_out_in_one_file(path: Path, written: Written) -> None:
    """A task would begin another file for rows that are so much larger."""
    driver = Sized(DeltaSink(path), RAW_TABLES)
    driver.prepared().load(step(0, 0, 500))
    driver.size = 20_000
    driver.load(step(0, 500, 503))
    assert driver.sink.compact(TARGET, nowhere) == 1
    assert stored(path) == list(range(503))
    copied = written.rows
    assert driver.sink.compact(TARGET, nowhere) == 0
    assert written.rows == copied == 503


@pytest.mark.usefixtures("small_groups")
def test_files_that_grow_when_they_are_joined_come_out_in_one(path: Path, written: Written) -> None:
    """They were compressed better than the one that is made of them: it is larger than was wanted, once."""
    driver = Driver(DeltaSink(path, compression="zstd"), RAW_TABLES).prepared()
    for start in (0, 1_000):
        driver.load(step(0, start, start + 1_000))
    sizes = [file.stat().st_size for file in path.glob("*.parquet")]
    plain = DeltaSink(path, compression="none")
    plain.prepare("lake", RAW_TABLES)
    assert plain.compact(2 * max(sizes), nowhere) == 1
    assert [file.size > 2 * sum(sizes) for file in written.files] == [True]
    assert plain.compact(2 * max(sizes), nowhere) == 0 and len(written.files) == 1
    assert len(stored(path)) == 2_000


def test_a_file_that_is_nearly_large_enough_is_not_copied_for_each_small_one(
    path: Path, written: Written
) -> None:
    """As in a load that runs on: after each of many cycles the small files are joined."""
    driver = Sized(DeltaSink(path), RAW_TABLES).prepared()
    cycles, each = 48, 200
    for cycle in range(cycles):
        driver.load(step(0, cycle * each, (cycle + 1) * each))
        driver.sink.compact(8 * TARGET, nowhere)
    assert written.rows <= 8 * cycles * each, "a row is copied when its file at least grows by half"
    assert len(DeltaTable(str(path)).file_uris()) <= 10
    assert stored(path) == list(range(cycles * each))
