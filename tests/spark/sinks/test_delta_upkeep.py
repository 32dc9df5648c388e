"""Delta tables under other hands: compacted, cleaned up, looked at."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from millstream.spark.sinks.base import Loss, LostRange, Position, SinkError, Standing
from millstream.spark.sinks.delta import lost
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import (
    NOON,
    RAW_TABLES,
    ROWS_SCHEMA,
    TABLES,
    TOPIC_ID,
    Driver,
    nowhere,
    offsets,
    runs,
    step,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return found


def make(path: Path, schema: pa.Schema = ROWS_SCHEMA, **more: Any) -> DeltaTable:
    return DeltaTable.create(str(path), Schema.from_arrow(schema), **more)


def test_an_optimize_at_the_same_moment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the commit of a rewind: it is decided anew, and nothing is doubled."""
    driver = Driver(DeltaSink(path)).prepared()
    for start in range(0, 20, 5):
        driver.load(step(0, start, start + 5), run="first")
    commit = DeltaTable.create_write_transaction
    done: list[str] = []

    def late(handle: DeltaTable, *args: Any, **more: Any) -> None:
        if handle.table_uri.rstrip("/").endswith("orders") and not done:
            done.append("optimized")
            DeltaTable(str(path)).optimize.compact()
        commit(handle, *args, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    driver.load(step(0, 3, 12), run="again")
    assert done
    assert offsets(rows(path)) == list(range(20))
    assert [o for o, run in sorted(runs(rows(path)).items()) if run == "again"] == list(range(3, 12))


def test_an_optimize_that_a_rewind_overtook(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    for start in range(0, 20, 5):
        driver.load(step(0, start, start + 5))
    slow = DeltaTable(str(path))
    driver.load(step(0, 3, 12))
    with pytest.raises(Exception, match="concurrent"):
        slow.optimize.compact()
    assert offsets(rows(path)) == list(range(20))


def test_compaction_joins_small_files(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    for start in range(0, 20, 2):
        driver.load(step(0, start, start + 2, bad={start}))
    reached: list[str] = []
    assert driver.sink.compact(1 << 20, reached.append) == 18
    assert reached == ["compacting", "compacting"]
    assert len(DeltaTable(str(path)).file_uris()) == 1
    assert driver.sink.compact(1 << 20, reached.append) == 0
    changes = DeltaTable(str(path)).history(1)[0]
    assert changes["operation"] == "WRITE"


def test_compaction_by_size(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    for start in range(0, 12, 2):
        driver.load(step(0, start, start + 2))
    size = max(file.stat().st_size for file in path.glob("*.parquet"))
    driver.sink.compact(2 * size, nowhere)
    assert len(DeltaTable(str(path)).file_uris()) == 3
    assert offsets(rows(path)) == list(range(12))


def test_a_compaction_that_died_leaves_litter_only(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    for start in range(0, 6, 2):
        driver.load(step(0, start, start + 2))

    def dies(point: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        driver.sink.compact(1 << 20, dies)
    assert offsets(rows(path)) == list(range(6))
    assert len(list(path.glob("*.parquet"))) == 3


def test_compaction_across_added_columns(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 2))
    DeltaTable(str(path)).alter.add_columns([Field("country", PrimitiveType("string"))])
    driver.load(step(0, 2, 4))
    assert driver.sink.compact(1 << 20, nowhere) == 1
    assert [row["country"] for row in rows(path)] == [None] * 4


def test_vacuum_deletes_litter_alone(path: Path) -> None:
    sink = DeltaSink(path)
    driver = Driver(sink).prepared()
    driver.load(step(0, 0, 10))
    driver.load(step(0, 3, 6), run="again")  # the file of 0 to 10 is removed, but the log still names it
    driver.plan(step(0, 6, 20, bad={7}))  # litter
    theirs = path / "notes.parquet"
    theirs.write_bytes(b"")
    assert sink.vacuum() == 0  # all of it is young
    for file in [*path.glob("*.parquet"), *path.with_name("orders_rejected").glob("*.parquet")]:
        os.utime(file, (time.time() - 90_000,) * 2)
    assert sink.vacuum(timedelta(days=2)) == 0
    assert sink.vacuum() == 2
    assert theirs.exists()
    assert offsets(rows(path)) == list(range(10))
    DeltaTable(str(path)).create_checkpoint()
    assert sink.vacuum(timedelta(0)) == 0
    assert offsets(pa.table(DeltaTable(str(path), version=1).scan()).to_pylist()) == list(range(10))


def test_readmitting_twice_commits_once(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10, bad={2}))
    written = driver.write("again", step(0, 2, 3), "repaired")
    versions = set()
    for _ in range(2):
        driver.sink.readmit([Position("orders", 0, 2)], [written], nowhere)
        versions.add(DeltaTable(str(path)).version())
    assert len(versions) == 1
    assert offsets(rows(path)) == list(range(10))


def test_history_tells_what_was_loaded(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    cycle = driver.load(step(0, 0, 5))
    (commit, *_) = DeltaTable(str(path)).history()
    assert commit["millstream.cycle"] == cycle.cycle_id
    assert commit["millstream.group"] == "lake"
    assert commit["millstream.ranges"] == f"orders-0 [0, 5) of {TOPIC_ID}"


def test_the_row_before_an_offset(path: Path) -> None:
    """Where rows are stamped with the start of their range, this finds the range of an offset."""
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 50, gaps=frozenset(range(1, 50))), step(1, 20, 22))
    driver.load(step(0, 50, 90, gaps=frozenset(range(51, 90))))
    driver.sink.compact(1 << 20, nowhere)
    driver.load(step(0, 90, 100, gaps=frozenset(range(91, 100))))
    sink = DeltaSink(path)
    found = [sink.range_start("orders", 0, offset) for offset in (0, 49, 50, 89, 90, 1000)]
    assert found == [0, 0, 50, 50, 90, 90]
    assert sink.range_start("orders", 1, 19) is None
    assert sink.range_start("orders", 7, 19) is None


def test_many_partitions_of_many_groups(path: Path) -> None:
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    driver.load(*[step(partition, 0, 1) for partition in range(200)])
    for number in range(3):
        other = Driver(DeltaSink(path), RAW_TABLES, group=f"group {number} / é").prepared()
        other.load(*[step(partition, 5, 5) for partition in range(200)])
        assert other.next_offset(199) == 5
    DeltaTable(str(path)).create_checkpoint()
    assert Driver(DeltaSink(path), RAW_TABLES).prepared().next_offset(150) == 1


def test_progress_over_many_commits_and_checkpoints(path: Path) -> None:
    """Checkpoints come of themselves, each hundred commits."""
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    driver.anchor(1, 7)
    for offset in range(110):
        driver.anchor(0, offset)
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    later = Driver(DeltaSink(path), RAW_TABLES).prepared()
    assert (later.next_offset(0), later.next_offset(1)) == (109, 7)
    assert later.standing(0) == driver.standing(0) != Standing(None, None)


def test_a_log_that_is_cleaned_up_at_once(path: Path) -> None:
    """A checkpoint with each commit, and nothing kept before it."""
    cleaned = {"delta.logRetentionDuration": "interval 0 seconds", "delta.checkpointInterval": "1"}
    make(path, RAW_TABLES.rows, configuration=cleaned | {"delta.enableExpiredLogCleanup": "true"})
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    other = Driver(DeltaSink(path), RAW_TABLES).prepared()
    for start in range(0, 12, 4):
        driver.load(step(0, start, start + 2), step(1, start, start + 2))
        other.load(step(0, start + 2, start + 4))
    assert len(list((path / "_delta_log").glob("*.json"))) < 7
    assert (driver.next_offset(0), other.next_offset(1)) == (12, 10)
    assert offsets(rows(path)) == list(range(12))


def test_a_file_that_somebody_deleted_stops_a_rewind(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10))
    (loaded,) = path.glob("*.parquet")
    cycle = driver.plan(step(0, 5, 10))
    loaded.unlink()
    with pytest.raises(SinkError, match="could not be replaced"):
        driver.sink.commit(cycle, nowhere)


def test_two_that_make_the_table_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table = DeltaTable.create

    def late(*args: Any, **more: Any) -> DeltaTable:
        make_table(*args, **more)
        return make_table(*args, **more)

    monkeypatch.setattr(DeltaTable, "create", late)
    Driver(DeltaSink(path), TABLES).prepared().load(step(0, 0, 3))
    assert offsets(rows(path)) == [0, 1, 2]


def test_lost_ranges_of_an_earlier_version(path: Path) -> None:
    """Its table had no topic ids: the column is added, and its ranges are kept."""
    columns = [field for field in lost.SCHEMA if field.name != "topic_id"]
    before = LostRange("orders", 0, 5, 7, Loss.SKIPPED, NOON)
    row = {"group_id": "lake", "cycle_id": "c", **asdict(before)}
    write_deltalake(f"{path}_lost", pa.Table.from_pylist([row], pa.schema(columns)))
    assert DeltaSink(path).lost("lake") == [before]
    now = replace(before, topic_id="id2", noticed_at=NOON + timedelta(seconds=1))
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 7, 9), lost=(now,))
    driver.load(step(0, 9, 10), lost=(now,))
    assert DeltaSink(path).lost("lake") == [before, now]
