"""9: tables that their users put back, or throw away, between cycles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from millstream.spark.sinks.base import Progress, ProgressConflictError, SinkError, Standing
from millstream.spark.sinks.delta.log import LOG
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import TOPIC_ID, Driver, nowhere, offsets, step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def driver(path: Path) -> Driver:
    """Three cycles were loaded: 0 to 30 of partition 0, and in the first one 0 to 5 of partition 1."""
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10), step(1, 0, 5))
    driver.load(step(0, 10, 20, bad={12}))
    driver.load(step(0, 20, 30))
    return driver


def rows(path: Path, partition: int = 0) -> list[int]:
    return offsets(pa.table(DeltaTable(str(path)).scan()).to_pylist(), partition)


def table(path: Path) -> DeltaTable:
    return DeltaTable(str(path))


def by_version(path: Path) -> None:
    table(path).restore(2)


def by_time(path: Path) -> None:
    # What counts is when files were written: here one a minute, as a fast machine writes two in an instant.
    began = datetime.now(UTC) - timedelta(hours=1)
    for version in range(4):
        written = (began + timedelta(minutes=version)).timestamp()
        os.utime(path / LOG / f"{version:020}.json", (written, written))
    table(path).restore(began + timedelta(minutes=2, seconds=30))


@pytest.mark.parametrize("restore", [by_version, by_time])
@pytest.mark.parametrize("same_driver", [True, False])
def test_a_table_that_was_restored(
    driver: Driver, path: Path, restore: Callable[[Path], None], same_driver: bool
) -> None:
    restore(path)
    if not same_driver:
        driver = Driver(DeltaSink(path)).prepared()
    assert driver.rows_progress(0) == Progress(20, 20, TOPIC_ID)
    assert driver.rows_progress(1) == Progress(5, 5, TOPIC_ID)
    assert driver.standing().rejected == Progress(30, 30, TOPIC_ID)
    driver.load(step(0, 20, 40))
    assert rows(path) == [o for o in range(40) if o != 12]
    assert driver.rows_progress(0) == Progress(40, 40, TOPIC_ID)
    assert driver.rows_progress(1) == Progress(5, 5, TOPIC_ID)


def test_what_was_never_loaded_is_restored(driver: Driver, path: Path) -> None:
    driver.anchor(2, 50)
    driver.anchor(2, 4)
    driver.load(step(2, 4, 9))
    before = table(path).version()
    driver.load(step(2, 9, 60))
    assert driver.rows_progress(2) == Progress(60, 60, TOPIC_ID, low_offset=4)
    table(path).restore(before)
    restored = Driver(DeltaSink(path)).prepared()
    assert restored.rows_progress(2) == Progress(9, 50, TOPIC_ID, low_offset=4, gap_end=50)


def test_a_table_that_was_restored_to_nothing(driver: Driver, path: Path) -> None:
    table(path).restore(0)
    assert driver.standing(0).rows is None
    driver.load(step(0, 0, 30, bad={12}))
    assert rows(path) == [o for o in range(30) if o != 12]


def test_restored_twice_and_forth(driver: Driver, path: Path) -> None:
    table(path).restore(1)
    driver.load(step(0, 10, 15))
    table(path).restore(3)
    assert driver.next_offset() == 30
    table(path).restore(5)
    assert driver.next_offset() == 15
    table(path).restore(4)
    assert driver.next_offset() == 10
    assert rows(path) == list(range(10))
    driver.load(step(0, 10, 30, bad={12}))
    assert rows(path) == [o for o in range(30) if o != 12]


def test_a_restore_under_a_checkpoint(driver: Driver, path: Path) -> None:
    """Found in what is left of the log before the checkpoint."""
    table(path).restore(2)
    driver.load(step(1, 5, 6))
    table(path).create_checkpoint()
    later = Driver(DeltaSink(path)).prepared()
    assert (later.next_offset(0), later.next_offset(1)) == (20, 6)


def test_what_a_restore_put_back_is_kept_by_the_next_commit(driver: Driver, path: Path) -> None:
    """Of all partitions and groups: times of files change when a table is copied, and logs are cleaned up."""
    by_time(path)
    Driver(DeltaSink(path), group="other").prepared().load(step(5, 0, 5))
    for version in range(7):
        if (commit := path / LOG / f"{version:020}.json").exists():
            os.utime(commit)
    later = Driver(DeltaSink(path)).prepared()
    assert later.rows_progress(0) == Progress(20, 20, TOPIC_ID)
    assert later.rows_progress(1) == Progress(5, 5, TOPIC_ID)
    table(path).create_checkpoint()
    for version in range(table(path).version()):
        (path / LOG / f"{version:020d}.json").unlink()
    later = Driver(DeltaSink(path)).prepared()
    assert (later.next_offset(0), later.next_offset(1)) == (20, 5)
    later.load(step(0, 20, 40), step(1, 5, 6))
    assert rows(path) == [o for o in range(40) if o != 12] and rows(path, 1) == list(range(6))


def test_a_table_without_progress_that_was_put_back_is_kept_as_well(driver: Driver, path: Path) -> None:
    table(path).restore(0)
    driver.load(step(1, 0, 5))
    table(path).create_checkpoint()
    for version in range(table(path).version()):
        (path / LOG / f"{version:020d}.json").unlink()
    later = Driver(DeltaSink(path)).prepared()
    assert later.standing(0).rows is None
    later.load(step(0, 0, 30, bad={12}))
    assert rows(path) == [o for o in range(30) if o != 12]
    assert later.rows_progress(0) == Progress(30, 30, TOPIC_ID)


def test_a_restore_during_a_cycle(driver: Driver, path: Path) -> None:
    cycle = driver.plan(step(0, 30, 40))
    table(path).restore(2)
    with pytest.raises(ProgressConflictError):
        driver.sink.commit(cycle, nowhere)
    assert rows(path) == [o for o in range(20) if o != 12]


def test_a_restore_at_the_last_moment(driver: Driver, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the comparison, before the commit: it is made strictly on top of what was compared."""
    cycle = driver.plan(step(0, 30, 40))
    commit = DeltaTable.create_write_transaction
    done: list[bool] = []

    def late(handle: DeltaTable, *args: object, **more: object) -> None:
        if handle.table_uri.rstrip("/").endswith("orders") and not done:
            done.append(True)
            table(path).restore(2)
        commit(handle, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    with pytest.raises(ProgressConflictError):
        driver.sink.commit(cycle, nowhere)
    assert rows(path) == [o for o in range(20) if o != 12]
    assert driver.next_offset() == 20


def test_a_restored_version_that_nobody_can_read(driver: Driver, path: Path) -> None:
    table(path).restore(2)
    table(path).create_checkpoint()
    for version in range(3):
        (path / LOG / f"{version:020d}.json").unlink()
    with pytest.raises(SinkError, match="restored in version 4"):
        Driver(DeltaSink(path)).prepared().standing(0)


@pytest.mark.parametrize("same_driver", [True, False])
def test_a_table_that_was_deleted(driver: Driver, path: Path, same_driver: bool) -> None:
    shutil.rmtree(path)
    shutil.rmtree(path.with_name("orders_rejected"))
    if not same_driver:
        driver = Driver(DeltaSink(path)).prepared()
    assert driver.standing() == Standing(None, None)
    driver.load(step(0, 0, 30, bad={12}))
    assert rows(path) == [o for o in range(30) if o != 12]


def test_a_table_that_was_deleted_and_made_anew(driver: Driver, path: Path) -> None:
    """Under a driver that knows the old one, at the same version."""
    old = driver.plan(step(0, 30, 40))
    shutil.rmtree(path)
    other = Driver(DeltaSink(path), group="other").prepared()
    for start in range(0, 50, 10):
        other.load(step(0, start, start + 10))
    assert driver.standing(0).rows is None
    with pytest.raises(ProgressConflictError):
        driver.sink.commit(old, nowhere)


def test_a_table_that_is_gone_at_the_commit(driver: Driver, path: Path) -> None:
    cycle = driver.plan(step(0, 30, 40))
    shutil.rmtree(path)
    with pytest.raises(ProgressConflictError):
        driver.sink.commit(cycle, nowhere)
