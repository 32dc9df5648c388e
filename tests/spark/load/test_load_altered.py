"""A whole load whose table somebody changes in the middle of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millstream import Admin
from millstream.errors import LoadFailedError
from millstream.spark.load import Detail, Point
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.load.conftest import NewLoad


def test_a_column_that_is_dropped_while_tasks_run(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, admin: Admin, group: str, tmp_path: Path
) -> None:
    """It fails at once, and says what to do; the group stays where it was, and the next run goes on."""
    topic = new_topic()
    path = str(tmp_path / "orders")
    fill(topic, 10)
    shape = {"value_format": "csv", "schema": "v STRING"}
    new_load(topic, sink=DeltaSink(path), **shape).run_once()
    before = admin.group_offsets(group)
    fill(topic, 10, first=10)
    cycles = 0

    def drop(point: Point, detail: Detail) -> None:
        nonlocal cycles
        if point is Point.TASKS_DONE:
            cycles += 1
            found = pa.table(DeltaTable(path).scan())
            write_deltalake(path, found.rename_columns({"v": "u"}), mode="overwrite", schema_mode="overwrite")

    with pytest.raises(LoadFailedError) as raised:
        new_load(topic, sink=DeltaSink(path), observer=drop, **shape).run_once()
    text = str(raised.value)
    assert "has lost the columns v" in text and "--add-columns" in text and f"{topic}-0 [10, 20)" in text
    assert cycles == 1 and admin.group_offsets(group) == before
    report = new_load(topic, sink=DeltaSink(path), add_columns=True, **shape).run_once()
    assert report.loaded == 10
    found = pa.table(DeltaTable(path).scan()).to_pylist()
    assert sorted(row["_offset"] for row in found) == list(range(20))
    assert all((row["u"] is None) != (row["v"] is None) for row in found)
