"""Commits to Delta tables of which the driver does not hear the end.

Files are deleted only when it is certain that no version of the table names them.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.base import Position, ProgressConflictError, SinkError
from millstream.spark.sinks.delta import table as delta_table
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import RAW_TABLES, Driver, nowhere, offsets, step

Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return found


def files_of(path: Path, tag: str = "") -> list[Path]:
    return sorted(path.glob(f"millstream-{tag}*.parquet"))


def loaded(path: Path, **options: Any) -> Driver:
    driver = Driver(DeltaSink(path, **options), RAW_TABLES).prepared()
    for start in (0, 4, 8):
        driver.load(step(0, start, start + 4))
    return driver


def around_commits(
    patch: pytest.MonkeyPatch, *, before: Callable[[], None] = lambda: None, after: Callable[[], None]
) -> None:
    commit = DeltaTable.create_write_transaction

    def wrapped(handle: DeltaTable, *args: Any, **more: Any) -> None:
        before()
        commit(handle, *args, **more)
        after()

    patch.setattr(DeltaTable, "create_write_transaction", wrapped)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def interrupted(patch: pytest.MonkeyPatch) -> None:
    around_commits(patch, after=_interrupt)


def unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delta_table, "read_commit", _fail)


def read_interrupted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delta_table, "read_commit", _interrupt)


def unsynced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(delta_table, "sync", _fail)


LANDED = pytest.mark.parametrize("fault", [interrupted, unread, read_interrupted, unsynced])


@LANDED
def test_a_compaction_that_happened(path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    driver = loaded(path)
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises((KeyboardInterrupt, SinkError)):
            driver.sink.compact(1 << 20, nowhere)
    assert len(DeltaTable(str(path)).file_uris()) == 1
    assert offsets(rows(path)) == list(range(12))


@LANDED
def test_a_rewind_that_happened(path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    driver = loaded(path)
    cycle = driver.plan(step(0, 3, 6))
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises((KeyboardInterrupt, SinkError)) as told:
            driver.sink.commit(cycle, nowhere)
    assert "could not be replaced" not in str(told.value)
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    assert driver.next_offset() == 6
    assert offsets(rows(path)) == list(range(12))
    driver.load(step(0, 6, 14))
    assert offsets(rows(path)) == list(range(14))


@LANDED
def test_a_readmission_that_happened(path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    driver = loaded(path)
    written = driver.write("again", step(0, 2, 3), "again")
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises((KeyboardInterrupt, SinkError)):
            driver.sink.readmit([Position("orders", 0, 2)], [written], nowhere)
    assert offsets(rows(path)) == list(range(12))


def test_a_join_that_a_rewind_overtook(path: Path) -> None:
    driver = loaded(path)

    def rewind(point: str) -> None:
        driver.load(step(0, 3, 6))

    assert driver.sink.compact(1 << 20, rewind) == 0
    assert files_of(path, "compacted") == []
    assert offsets(rows(path)) == list(range(12))


def test_a_conflict_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver comes between the look and the commit of a rewind."""
    driver = loaded(path)
    cycle = driver.plan(step(0, 3, 6))
    other = Driver(DeltaSink(path), RAW_TABLES).prepared()
    came: list[int] = []

    def come_between() -> None:
        if not came:
            came.append(len(files_of(path, cycle.cycle_id)))
            other.load(step(0, 2, 7))

    around_commits(monkeypatch, before=come_between, after=lambda: None)
    with pytest.raises(ProgressConflictError):
        driver.sink.commit(cycle, nowhere)
    assert came == [3], "two files were written anew, besides the task's"
    assert len(files_of(path, cycle.cycle_id)) == 1
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    assert files_of(path, cycle.cycle_id) == []
    assert offsets(rows(path)) == list(range(12))


def test_a_commit_that_certainly_failed_leaves_nothing_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = loaded(path)
    cycle = driver.plan(step(0, 3, 6))
    with monkeypatch.context() as patch:
        around_commits(patch, before=_fail, after=lambda: None)
        with pytest.raises(SinkError, match=r"failed: .*Input/output error"):
            driver.sink.commit(cycle, nowhere)
        with pytest.raises(SinkError, match="failed"):
            driver.sink.compact(1 << 20, nowhere)
    assert len(files_of(path, cycle.cycle_id)) == 1
    assert files_of(path, "compacted") == []
    assert offsets(rows(path)) == list(range(12))


def test_a_commit_that_may_have_been_cleaned_up_keeps_its_files(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in the log, but later ones are: it may have been, and others build on it."""
    driver = loaded(path)
    cycle = driver.plan(step(0, 3, 6))
    with monkeypatch.context() as patch:
        around_commits(patch, after=_fail)
        patch.setattr(delta_table, "read_commit", lambda *_: None)
        with pytest.raises(SinkError, match="failed"):
            driver.sink.commit(cycle, nowhere)
    assert offsets(rows(path)) == list(range(12))


def test_files_are_compressed_as_the_sink_is_told(path: Path) -> None:
    """Also those that are joined, and those that are written anew."""
    driver = loaded(path, compression="zstd")
    driver.load(step(0, 2, 3))
    assert driver.sink.compact(1 << 20, nowhere) > 0
    driver.load(step(0, 5, 7))
    used = {pq.read_metadata(file).row_group(0).column(0).compression for file in files_of(path)}
    assert used == {"ZSTD"}


def test_what_was_committed_is_not_abandoned_though_others_have_joined_it(path: Path) -> None:
    """Older versions of the table still name it."""
    driver = loaded(path)
    cycle = driver.load(step(0, 12, 16))
    version = DeltaTable(str(path)).version()
    assert driver.sink.compact(1 << 20, nowhere) == 3
    driver.sink.abandon(cycle.cycle_id, cycle.written)
    assert offsets(pa.table(DeltaTable(str(path), version=version).scan()).to_pylist()) == list(range(16))
