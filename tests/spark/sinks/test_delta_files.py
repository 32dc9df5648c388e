"""The files that tasks write for the Delta sink."""

from __future__ import annotations

import errno
import json
import math
import os
import pickle
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Advance, Cycle, SinkError, Tables
from millstream.spark.sinks.delta.parquet import files as delta_files
from millstream.spark.sinks.delta.parquet import reading as delta_reading
from millstream.spark.sinks.delta.parquet.files import DataFile, unpack
from millstream.spark.sinks.delta.sink import DeltaSink
from millstream.spark.sinks.delta.table import ActiveFile
from tests.spark.sinks.driving import (
    NOON,
    RAW_TABLES,
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    Driver,
    nowhere,
    raw_batch,
    rejected_batch,
    rows_batch,
    step,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def files_of(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet"))


def written(driver: Driver, *batches: pa.RecordBatch) -> list[DataFile]:
    output = driver.sink.writer("cycle").open()
    for batch in batches:
        output.write_rows(batch)
    rows, _ = unpack([output.finish()])
    return rows


def test_attempts_never_share_a_name(path: Path) -> None:
    """17: two tasks, two attempts of one task, two cycles under one id."""
    driver = Driver(DeltaSink(path)).prepared()
    writer = driver.sink.writer("cycle")
    names: set[str] = set()
    for copied in (writer, writer, pickle.loads(pickle.dumps(writer)), driver.sink.writer("cycle")):
        output = copied.open()
        output.write_rows(rows_batch("orders", 0, [1], "run"))
        names.update(file.path for file in unpack([output.finish()])[0])
    assert len(names) == len(files_of(path)) == 4


def test_everything_is_on_the_disk_before_a_task_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """18: each file, after its last byte, and the directories that name it."""
    tables = Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("run",))
    driver = Driver(DeltaSink(path), tables).prepared()
    synced: dict[str, int] = {}
    monkeypatch.setattr(os, "fsync", lambda fd: synced.update({_name(fd): os.fstat(fd).st_size}))
    output = driver.sink.writer("cycle").open()
    output.write_rows(rows_batch("orders", 0, range(5), "a"))
    output.write_rejected(rejected_batch("orders", 0, [7], "b"))
    rows, rejected = unpack([output.finish()])
    for directory, file in ((path, rows[0]), (path.with_name("orders_rejected"), rejected[0])):
        assert synced[str(directory / file.path)] == file.size
        assert str(directory) in synced
    assert str(path / "run=a") in synced


def test_a_commit_is_on_the_disk_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """18: delta-rs leaves that to the system."""
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    synced: set[str] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(_name(fd)))
    driver.load(step(0, 0, 5))
    assert {str(path / "_delta_log"), str(path / "_delta_log" / f"{1:020d}.json")} <= synced


def _name(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def test_a_disk_that_fails_is_no_success(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    output = driver.sink.writer("cycle").open()
    output.write_rows(rows_batch("orders", 0, range(5), "a"))

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(SinkError, match=r"orders.*Input/output error.*running again is safe"):
            output.finish()
    output.abort()
    assert files_of(path) == []


def test_a_commit_that_may_not_survive_is_no_success(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """18: it is there, but the group does not hear of it."""
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    cycle = driver.plan(step(0, 0, 5))

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(SinkError, match="power cut"):
            driver.sink.commit(cycle, nowhere)
    assert driver.next_offset() == 5


def test_a_directory_that_cannot_be_written(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    output = driver.sink.writer("cycle").open()
    output.write_rows(rows_batch("orders", 0, range(5), "a"))
    os.rename(path, path.with_name("moved"))
    path.write_text("in the way")
    with pytest.raises(SinkError, match="could not be written"):
        output.finish()
    output.abort()


def test_no_file_without_rows(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    output = driver.sink.writer("cycle").open()
    output.write_rows(rows_batch("orders", 0, [], "a"))
    done = output.finish()
    assert (done.rows, done.files, done.size) == (0, 0, 0)
    assert files_of(path) == []


def test_files_roll_at_the_target_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_files, "_GROUP_BYTES", 10_000)
    driver = Driver(DeltaSink(path, target_file_size=20_000), RAW_TABLES).prepared()
    random = [raw_batch("orders", 0, range(n * 100, n * 100 + 100)) for n in range(20)]
    noise = [
        batch.set_column(5, RAW_TABLES.rows.field("value"), pa.array([os.urandom(100) for _ in range(100)]))
        for batch in random
    ]
    files = written(driver, *noise)
    assert len(files) > 5
    assert all(15_000 < file.size < 40_000 for file in files[:-1])
    assert sum(file.rows for file in files) == 2000
    bounds = [json.loads(file.stats) for file in files]
    assert bounds[0]["minValues"]["offset"] == 0
    assert bounds[-1]["maxValues"]["offset"] == 1999


def test_abandoned_files_are_deleted(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    cycle = driver.plan(step(0, 0, 5, bad={1}))
    assert len(files_of(path)) == 1
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    assert files_of(path) == [] == files_of(path.with_name("orders_rejected"))


def test_files_that_are_gone_are_not_committed(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    cycle = driver.plan(step(0, 0, 5))
    files_of(path)[0].unlink()
    with pytest.raises(SinkError, match="are missing"):
        driver.sink.commit(cycle, nowhere)
    assert driver.next_offset() is None


# -- statistics


def test_statistics(path: Path) -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("day", pa.date32()),
            ("price", pa.float64()),
            ("odd", pa.float64()),
            ("empty", pa.int32()),
            ("flag", pa.bool_()),
            ("bytes", pa.binary()),
            ("names", pa.list_(pa.field("element", pa.string()))),
            *list(ROWS_SCHEMA)[3:],
        ]
    )
    rows: list[dict[str, Any]] = [
        {"text": "b", "day": date(2026, 3, 1), "price": 2.5, "odd": 1.0, "flag": True, "bytes": b"b"},
        {"text": "a", "day": None, "price": -1.0, "odd": math.nan, "flag": None, "names": ["x"]},
    ]
    for number, row in enumerate(rows):
        row |= {"_topic": "orders", "_partition": 3, "_offset": 70 + number, "_timestamp": NOON}
    driver = Driver(DeltaSink(path), Tables(schema, REJECTED_SCHEMA)).prepared()
    (file,) = written(driver, pa.RecordBatch.from_pylist(rows, schema))
    stats = json.loads(file.stats)
    moment = "2026-03-01T12:00:00.000000Z"
    place = {"_topic": "orders", "_partition": 3, "_timestamp": moment}
    assert stats["numRecords"] == 2
    assert stats["minValues"] == place | {"_offset": 70, "text": "a", "day": "2026-03-01", "price": -1.0}
    assert stats["maxValues"] == place | {"_offset": 71, "text": "b", "day": "2026-03-01", "price": 2.5}
    nulls = {name: stats["nullCount"][name] for name in ("text", "day", "empty", "flag", "_offset")}
    assert nulls == {"text": 0, "day": 1, "empty": 2, "flag": 1, "_offset": 0}


def test_positions_have_statistics_in_wide_tables_too(path: Path) -> None:
    wide = [pa.field(f"c{number}", pa.int32()) for number in range(40)]
    schema = pa.schema([*wide, *list(ROWS_SCHEMA)[3:]])
    driver = Driver(DeltaSink(path), Tables(schema, REJECTED_SCHEMA)).prepared()
    row = {"_topic": "orders", "_partition": 0, "_offset": 5}
    (file,) = written(driver, pa.RecordBatch.from_pylist([row], schema))
    assert json.loads(file.stats)["minValues"] == row


def test_readers_skip_by_statistics(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    for start in (0, 10, 20):
        driver.load(step(0, start, start + 10))
    found = pa.table(DeltaTable(str(path)).scan(predicate="_offset >= 25 AND _topic = 'orders'"))
    assert found.num_rows == 5
    actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
    assert sorted(actions["max._offset"].to_pylist()) == [9, 19, 29]
    assert set(actions["max._timestamp"].to_pylist()) == {NOON}


def test_long_texts_have_no_bounds(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    (file,) = written(driver, rows_batch("orders", 0, [1], "x" * 100))
    assert "run" not in json.loads(file.stats)["minValues"]


# -- columns of the files


def test_batches_are_put_in_order(path: Path) -> None:
    """By name: the order of the columns does not matter, a missing one does."""
    driver = Driver(DeltaSink(path)).prepared()
    batch = rows_batch("orders", 0, [1, 2], "run")
    (file,) = written(driver, batch.select(batch.schema.names[::-1]))
    assert pq.read_table(path / file.path).schema.names == ROWS_SCHEMA.names
    with pytest.raises(SinkError, match="price"):
        written(driver, batch.drop_columns(["price"]))


def test_raw_landing_rejects_nothing(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    output = driver.sink.writer("cycle").open()
    with pytest.raises(SinkError, match="rejects nothing"):
        output.write_rejected(rejected_batch("orders", 0, [1], "r"))


def test_many_partitions_hold_no_more_in_memory_than_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of up to 64 open files has a row group of its own under way."""
    batch = rows_batch("orders", 0, range(500), "run")
    monkeypatch.setattr(delta_files, "_MOST_BYTES", 3 * batch.nbytes)
    shape = delta_files.Shape(path, ROWS_SCHEMA, ("_partition",))
    writer = delta_files.TableWriter(shape, "tag")
    for partition in range(20):
        writer.write(rows_batch("orders", partition, range(500), "run"))
        assert sum(file.held_bytes for file in writer._open.values()) <= 3 * batch.nbytes
    made = writer.finish()
    assert sum(file.rows for file in made) == 20 * 500 and len(made) == 20


def test_the_newest_rejected_rows_are_found_without_reading_all(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    for number in range(4):
        moment = NOON + timedelta(seconds=number)
        batch = rejected_batch("orders", 0, [number * 2, number * 2 + 1], "bad")
        at = pa.array([moment, moment], REJECTED_SCHEMA.field("rejected_at").type)
        output = driver.sink.writer("cycle").open()
        output.write_rejected(
            batch.set_column(batch.schema.get_field_index("rejected_at"), "rejected_at", at)
        )
        where = TopicPartition("orders", 0)
        standing = driver.sink.standing("lake", [where])[where]
        advance = Advance("orders", 0, "00", number * 2, number * 2 + 2, standing)
        driver.sink.commit(Cycle("lake", f"c{number}", (advance,), (output.finish(),)), nowhere)
    opened: list[str] = []
    original = delta_reading._batches

    def counted(file: ActiveFile, *rest: Any) -> Any:
        opened.append(file.path)
        return original(file, *rest)

    monkeypatch.setattr(delta_reading, "_batches", counted)
    assert driver.sink.read_rejected(3)["offset"].to_pylist() == [5, 6, 7]
    assert len(opened) == 2
    assert driver.sink.read_rejected(100)["offset"].to_pylist() == list(range(8))
