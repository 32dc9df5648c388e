"""Delta tables that somebody else changes while they are loaded: with rows, columns, properties, or by force.

What cannot go on fails, says what and what to do, and leaves the table as it was; the next run is safe.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import Position, SchemaConflictError, SinkError, SinkRefusedError, Tables
from millstream.spark.sinks.delta import log as delta_log
from millstream.spark.sinks.delta.errors import failed
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.sinks.driving import REJECTED_SCHEMA, ROWS_SCHEMA, Driver, nowhere, offsets, runs, step


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def table(path: Path) -> pa.Table:
    return pa.table(DeltaTable(str(path)).scan())


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table(path).to_pylist()
    return found


def loaded(path: Path) -> Driver:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 5, bad={1}), run="first")
    return driver


# ---- others' rows


def test_rows_that_others_have_written_anew(path: Path) -> None:
    """delta-rs stores texts in a type of its own when it deletes or changes rows; all of them are found."""
    driver = loaded(path)
    driver.load(step(0, 5, 10, bad={6}), run="first")
    DeltaTable(str(path)).delete("id = 3")
    DeltaTable(str(path)).update(updates={"price": "99.0"}, predicate="id = 7")
    rejected = DeltaTable(str(path.with_name("orders_rejected")))
    rejected.update(updates={"reason": "'else'"}, predicate="offset = 6")
    assert driver.sink.compact(1 << 20, nowhere) == 1
    DeltaTable(str(path)).delete("id = 4")
    sink = DeltaSink(path)
    assert [sink.range_start("orders", 0, offset) for offset in (2, 4, 100)] == [2, 2, 9]
    assert sink.read_rejected()["reason"].to_pylist() == ["first", "else"]
    driver.load(step(0, 2, 8), run="again")
    assert offsets(rows(path)) == [0, *range(2, 10)] and offsets(driver.sink.read_rejected().to_pylist()) == [
        1
    ]
    assert [offset for offset, run in runs(rows(path)).items() if run == "again"] == list(range(2, 8))


def test_an_append_and_an_overwrite_in_between(path: Path) -> None:
    driver = loaded(path)
    theirs = pa.Table.from_pylist([{"id": 99, "run": "theirs"}], ROWS_SCHEMA)
    cycle = driver.plan(step(0, 5, 7))
    write_deltalake(str(path), theirs, mode="append")
    driver.sink.commit(cycle, nowhere)
    cycle = driver.plan(step(0, 7, 9))
    write_deltalake(str(path), theirs, mode="overwrite")
    driver.sink.commit(cycle, nowhere)
    ours = [row for row in rows(path) if row["run"] != "theirs"]
    assert offsets(ours) == [7, 8] and driver.next_offset() == 9


# ---- others' columns and properties


def rewritten(change: Callable[[pa.Table], pa.Table], **more: Any) -> Callable[[Path], None]:
    """An overwrite of everything, columns and all."""

    def do(path: Path) -> None:
        write_deltalake(str(path), change(table(path)), mode="overwrite", schema_mode="overwrite", **more)

    return do


def _as_text(found: pa.Table) -> pa.Table:
    return found.set_column(found.schema.get_field_index("id"), "id", found["id"].cast(pa.string()))


def _with_must(found: pa.Table) -> pa.Table:
    return found.append_column(pa.field("must", pa.int64(), nullable=False), pa.array([1] * found.num_rows))


CHANGED = {
    "a column dropped": (rewritten(lambda found: found.drop_columns(["price"])), "lost the columns price"),
    "a type changed": (rewritten(_as_text), "id is string there and long in the load"),
    "a column that must be given": (rewritten(_with_must), "must must not be null"),
    "partitioned": (
        rewritten(lambda found: found, partition_by=["_partition"]),
        r"repartitioned.*_partition",
    ),
    "constrained": (
        lambda path: DeltaTable(str(path)).alter.add_constraint({"c": "id < 7"}),
        "check constraints",
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGED.values(), ids=CHANGED)
def test_a_table_that_files_do_not_fit_any_more(
    path: Path, change: Callable[[Path], None], said: str
) -> None:
    """Neither the rows nor the rejected rows are committed."""
    driver = loaded(path)
    cycle = driver.plan(step(0, 5, 10, bad={7}))
    change(path)
    with pytest.raises(SinkError, match=said):
        driver.sink.commit(cycle, nowhere)
    assert offsets(rows(path)) == [0, 2, 3, 4]
    assert offsets(rows(path.with_name("orders_rejected"))) == [1]
    driver.sink.abandon(cycle.cycle_id, cycle.written)


def test_columns_that_were_dropped_come_back_if_they_may(path: Path) -> None:
    driver = loaded(path)
    rewritten(lambda found: found.drop_columns(["price"]))(path)
    with pytest.raises(SchemaConflictError, match="--add-columns"):
        driver.load(step(0, 5, 10))
    Driver(DeltaSink(path), Tables(ROWS_SCHEMA, REJECTED_SCHEMA, add_columns=True)).prepared().load(
        step(0, 5, 8)
    )
    assert offsets(rows(path)) == [0, *range(2, 8)]


def test_a_table_that_is_partitioned_anew_goes_on_from_the_next_plan(path: Path) -> None:
    driver = loaded(path)
    rewritten(lambda found: found, partition_by=["_partition"])(path)
    driver.load(step(0, 5, 8))
    assert offsets(rows(path)) == [0, *range(2, 8)]


def test_a_partition_column_that_the_load_does_not_have(path: Path) -> None:
    driver = loaded(path)
    divided = rewritten(
        lambda found: found.append_column("region", pa.array(["eu"] * found.num_rows)),
        partition_by=["region"],
    )
    divided(path)
    with pytest.raises(SchemaConflictError, match="is partitioned by region"):
        driver.load(step(0, 5, 8))


def test_rejected_rows_that_must_not_leave_do_not_enter(path: Path) -> None:
    driver = loaded(path)
    rejected = path.with_name("orders_rejected")
    DeltaTable(str(rejected)).alter.set_table_properties({"delta.appendOnly": "true"})
    written = driver.write("again", step(0, 1, 2), "repaired")
    with pytest.raises(SinkError, match=r"orders_rejected is append-only.*UNSET"):
        driver.sink.readmit([Position("orders", 0, 1)], [written], nowhere)
    assert offsets(rows(path)) == [0, 2, 3, 4], "a record is in one of the two tables"


# ---- others who clean up


def test_files_that_were_cleaned_up_before_their_commit(path: Path) -> None:
    driver = loaded(path)
    cycle = driver.plan(step(0, 5, 10))
    DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(SinkError, match=r"are missing.*was the directory cleaned up"):
        driver.sink.commit(cycle, nowhere)
    driver.load(step(0, 5, 10))
    assert offsets(rows(path)) == [0, *range(2, 10)]


def test_two_who_clean_up_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the other one has just deleted are gone, and that is all."""
    driver = loaded(path)
    driver.plan(step(0, 5, 10))  # litter
    found = Path.rglob

    def late(self: Path, pattern: str) -> list[Path]:
        return [*found(self, pattern), self / "millstream-gone.parquet"]

    monkeypatch.setattr(Path, "rglob", late)
    assert DeltaSink(path).vacuum(timedelta(0)) == 1
    assert offsets(rows(path)) == [0, 2, 3, 4]


def test_a_log_that_is_cleaned_up_while_it_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a commit named that is gone by now a checkpoint names."""
    driver = loaded(path)
    driver.load(step(0, 5, 10))
    DeltaTable(str(path)).create_checkpoint()
    read = Path.read_text
    first = path / delta_log.LOG / f"{1:020d}.json"

    def gone(self: Path, *args: Any, **more: Any) -> str:
        if self == first:
            self.unlink(missing_ok=True)
        return read(self, *args, **more)

    monkeypatch.setattr(Path, "read_text", gone)
    assert DeltaSink(path).vacuum(timedelta(0)) == 0
    assert offsets(rows(path)) == [0, *range(2, 10)]


# ---- the disk


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """As on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_while_a_task_writes(path: Path) -> None:
    driver = loaded(path)
    before = sorted(path.rglob("*.parquet"))
    output = driver.sink.writer("cycle").open()
    output.write_rows(driver.rows(step(0, 5, 1000), "full"))
    with no_file_larger_than(500), pytest.raises(SinkError, match=r"orders.*too large.*Make room there"):
        output.finish()
    output.abort()
    assert sorted(path.rglob("*.parquet")) == before


def test_a_disk_that_is_full_at_the_commit(path: Path) -> None:
    driver = loaded(path)
    cycle = driver.plan(step(0, 5, 10))
    with no_file_larger_than(100), pytest.raises(SinkError) as raised:
        driver.sink.commit(cycle, nowhere)
    text = str(raised.value)
    assert "\n" not in text and "\x1b" not in text and "Make room there, and run it again" in text
    assert driver.next_offset() == 5 and offsets(rows(path)) == [0, 2, 3, 4]
    driver.sink.commit(driver.plan(step(0, 5, 10)), nowhere)
    assert offsets(rows(path)) == [0, *range(2, 10)]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermissionError(13, "Permission denied"), SinkRefusedError, "Let this user read and write there"),
        (
            DeltaError("a\n  \x1b[31m↳\x1b[0m b (os error 13)"),
            SinkRefusedError,
            r"a: b \(os error 13\)\. Let",
        ),
        (OSError(30, "Read-only file system"), SinkRefusedError, "Let this user"),
        (
            DeltaError("Unable to copy (os error 28)\n\n   0: <unknown>\n   1: x"),
            SinkError,
            r"28\)\. Make room",
        ),
        (DeltaError("Not a directory (os error 20)"), SinkError, "Something else has this name"),
        (DeltaError("who knows"), SinkError, "who knows$"),
        (DeltaError("x" * 1000), SinkError, "x{500}…$"),
    ],
)
def test_words(error: Exception, kind: type[SinkError], said: str) -> None:
    with pytest.raises(SinkError, match=said) as raised:
        raise failed("the Delta table orders cannot be opened", error)
    assert type(raised.value) is kind


def test_no_table_but_something_else(path: Path) -> None:
    path.write_text("notes")
    with pytest.raises(SinkError, match="Something else has this name"):
        Driver(DeltaSink(path)).prepared()


def test_a_log_that_is_broken(path: Path) -> None:
    driver = loaded(path)
    newest = max((path / delta_log.LOG).glob("*.json"))
    newest.write_text("{broken")
    with pytest.raises(SinkError, match=r"cannot be opened.*Repair its log") as raised:
        Driver(DeltaSink(path)).prepared()
    assert "\n" not in str(raised.value)
    with pytest.raises(SinkError):
        driver.next_offset()


def test_a_table_that_was_deleted_is_made_anew(path: Path) -> None:
    driver = loaded(path)
    shutil.rmtree(path)
    assert driver.next_offset() is None
    driver.load(step(0, 0, 3))
    assert offsets(rows(path)) == [0, 1, 2] and os.listdir(path)
