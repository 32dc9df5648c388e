"""Delta tables that are partitioned by columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from millstream.spark.sinks.base import SchemaConflictError, SinkError, Tables
from millstream.spark.sinks.delta.parquet.reading import read_rows
from millstream.spark.sinks.delta.sink import DeltaSink
from millstream.spark.sinks.delta.table import Table
from millstream.spark.sinks.partitioning import DERIVED
from tests.spark.sinks.driving import (
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    Driver,
    Step,
    nowhere,
    offsets,
    rows_batch,
    runs,
    step,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(path)).scan()).to_pylist()
    return found


class Partitioned(Driver):
    """Its column ``run`` takes the values that it is told, one after the other."""

    values: tuple[Any, ...] = ("a", "b")

    def rows(self, step: Step, run: str) -> pa.RecordBatch:
        batch = rows_batch(step.topic, step.partition, step.good, run)
        kind = self.tables.rows.field("run").type
        column = pa.array([self.values[offset % len(self.values)] for offset in step.good], kind)
        return batch.set_column(2, self.tables.rows.field("run"), column)


def partitioned(path: Path, values: tuple[Any, ...], kind: pa.DataType) -> Partitioned:
    columns = [pa.field("run", kind) if column.name == "run" else column for column in ROWS_SCHEMA]
    driver = Partitioned(DeltaSink(path), Tables(pa.schema(columns), REJECTED_SCHEMA, partition_by=("run",)))
    driver.values = values
    driver.prepared()
    return driver


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (("Kenya", "a b", "é/x%41", "n=1", None), pa.string()),
        ((1, -5, None), pa.int32()),
        ((date(2026, 3, 1), date(1969, 12, 31)), pa.date32()),
        ((True, False), pa.bool_()),
        (
            (datetime(2026, 3, 1, 12, 0, 0, 5, UTC), datetime(1969, 1, 1, tzinfo=UTC)),
            pa.timestamp("us", "UTC"),
        ),
    ],
    ids=["text", "number", "day", "flag", "moment"],
)
def test_partitions(path: Path, values: tuple[Any, ...], kind: pa.DataType) -> None:
    """Written, replaced, joined, and after delta-rs laid the files out its own way replaced once more."""
    driver = partitioned(path, values, kind)
    wanted = {offset: values[offset % len(values)] for offset in range(20)}
    driver.load(step(0, 0, 10))
    driver.load(step(0, 10, 20))
    assert runs(rows(path)) == wanted
    snapshot = Table(path).look()
    assert snapshot is not None
    assert runs(read_rows(snapshot, path).to_pylist()) == wanted
    driver.load(step(0, 3, 17))
    assert offsets(rows(path)) == list(range(20))
    assert driver.sink.compact(1 << 20, nowhere) > 0
    assert runs(rows(path)) == wanted
    DeltaTable(str(path)).optimize.compact()
    driver.load(step(0, 17, 20))
    driver.load(step(0, 20, 25))
    DeltaTable(str(path)).optimize.compact()
    driver.load(step(0, 2, 18, gaps=frozenset({7})))
    assert offsets(rows(path)) == [o for o in range(25) if o != 7]
    assert runs(rows(path)) == {o: values[o % len(values)] for o in range(25) if o != 7}


def test_partitions_have_directories(path: Path) -> None:
    driver = partitioned(path, ("Kenya", None, "a/b"), pa.string())
    driver.load(step(0, 0, 3))
    found = {file.parent.name for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}
    assert found == {"run=Kenya", "run=__HIVE_DEFAULT_PARTITION__", "run=a_b"}


def test_compaction_tells_null_from_the_text_none(path: Path) -> None:
    driver = partitioned(path, (None, "None"), pa.string())
    for start in (0, 2, 4):
        driver.load(step(0, start, start + 2))
    before = {row["_offset"]: row["run"] for row in rows(path)}
    assert driver.sink.compact(1 << 20, nowhere) == 4
    assert {row["_offset"]: row["run"] for row in rows(path)} == before == dict(enumerate((None, "None") * 3))


def test_partitioned_by_position(path: Path) -> None:
    tables = Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("_topic", "_partition"))
    driver = Driver(DeltaSink(path), tables).prepared()
    driver.load(step(0, 0, 10), step(1, 0, 10))
    driver.load(step(0, 3, 6), run="again")
    assert offsets(rows(path), 0) == offsets(rows(path), 1) == list(range(10))
    assert [o for o, run in runs(rows(path)).items() if run == "again"] == [3, 4, 5]


def test_many_partitions_at_once(path: Path) -> None:
    """More than there are files open at a time."""
    driver = partitioned(path, tuple(range(150)), pa.int32())
    driver.load(step(0, 0, 300))
    assert {row["_offset"]: row["run"] for row in rows(path)} == {o: o % 150 for o in range(300)}


def test_a_table_keeps_its_partitioning(path: Path) -> None:
    partitioned(path, ("a",), pa.string()).load(step(0, 0, 3))
    plain = Driver(DeltaSink(path)).prepared()
    plain.load(step(0, 3, 5), run="z")
    assert {row["run"] for row in rows(path)} == {"a", "z"}
    with pytest.raises(SinkError, match=r"partitioned by \(run\), and cannot be partitioned by \(id\)"):
        DeltaSink(path).prepare("lake", Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("id",)))


def test_a_table_without_partitions_says_so(path: Path) -> None:
    Driver(DeltaSink(path)).prepared()
    assert DeltaSink(path).partitioned_by() == ()
    with pytest.raises(SinkError, match=r"has no partitions, and cannot be partitioned by \(id\)"):
        DeltaSink(path).prepare("lake", Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("id",)))


def by_day(expression: str) -> Tables:
    """Tables that are partitioned by a column ``day``, derived like this."""
    day = pa.field("day", pa.date32(), metadata={DERIVED: expression})
    return Tables(ROWS_SCHEMA.append(day), REJECTED_SCHEMA, partition_by=("day",))


def test_a_table_remembers_how_a_partition_column_is_derived(path: Path) -> None:
    assert DeltaSink(path).partitioned_by() == ()
    DeltaSink(path).prepare("lake", by_day("date(_timestamp)"))
    assert DeltaSink(path).partitioned_by() == ("date(_timestamp) AS day",)
    DeltaSink(path).prepare("lake", by_day("date(_timestamp)"))
    with pytest.raises(
        SinkError, match=r"by \(date\(_timestamp\) AS day\), and .* by \(date\(made\) AS day\)"
    ):
        DeltaSink(path).prepare("lake", by_day("date(made)"))
    own = Tables(ROWS_SCHEMA.append(pa.field("day", pa.date32())), REJECTED_SCHEMA)
    DeltaSink(path).prepare("lake", own)
    DeltaTable(str(path)).alter.add_columns([Field("more", PrimitiveType("string"))])
    DeltaTable(str(path)).optimize.compact()
    assert DeltaSink(path).partitioned_by() == ("date(_timestamp) AS day",)


def test_a_load_without_the_column_that_divides_the_table(path: Path) -> None:
    """It was derived by another load: said before any task runs."""
    divided = Tables(ROWS_SCHEMA.append(pa.field("day", pa.date32())), REJECTED_SCHEMA, partition_by=("day",))
    DeltaSink(path).prepare("lake", divided)
    with pytest.raises(SchemaConflictError, match=r"partitioned by day, .*--partition-by '.* AS day'"):
        Driver(DeltaSink(path)).prepared()


def test_names_quoted_in_another_way(path: Path) -> None:
    """Another engine quoted more than delta-rs would: such a file can be read, and not be removed."""
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 5))
    driver.load(step(0, 5, 10))
    for version in (1, 2):
        log = path / "_delta_log" / f"{version:020d}.json"
        log.write_text(log.read_text().replace('"path":"millstream-', '"path":"millstream%2D'))
    later = Driver(DeltaSink(path)).prepared()
    assert offsets(rows(path)) == list(range(10))
    with pytest.raises(SinkError, match="OPTIMIZE"):
        later.load(step(0, 5, 10))
    assert later.sink.compact(1 << 20, nowhere) == 0
    assert offsets(rows(path)) == list(range(10))


@pytest.mark.parametrize(("name", "said"), [("country", "no such column"), ("price", "double")])
def test_columns_that_cannot_partition(path: Path, name: str, said: str) -> None:
    with pytest.raises(SchemaConflictError, match=said):
        DeltaSink(path).prepare("lake", Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=(name,)))
