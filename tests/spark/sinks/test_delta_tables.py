"""Delta tables as they are found: partitioned, of others, with features, under other hands."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType

from millstream.errors import ConfigError, MisuseError
from millstream.spark.sinks.base import Position, SchemaConflictError, SinkError, Standing, Tables
from millstream.spark.sinks.delta import COMPRESSIONS, DeltaSink
from tests.spark.sinks.driving import (
    RAW_TABLES,
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    TABLES,
    TOPIC_ID,
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
    found: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return found


def make(path: Path, schema: pa.Schema = ROWS_SCHEMA, **more: Any) -> DeltaTable:
    return DeltaTable.create(str(path), Schema.from_arrow(schema), **more)


# -- tables that are refused


def test_a_table_that_forgets_transactions_is_refused(path: Path) -> None:
    """23: with them it would forget how far the load has come."""
    make(path, configuration={"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(SinkError, match=r"setTransactionRetentionDuration.*UNSET"):
        Driver(DeltaSink(path)).prepared()


def test_a_table_that_begins_to_forget_is_refused_too(path: Path) -> None:
    """23: the property may come while a load runs."""
    driver = Driver(DeltaSink(path), RAW_TABLES).prepared()
    cycle = driver.plan(step(0, 0, 5))
    DeltaTable(str(path)).alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}, raise_if_not_exists=False
    )
    with pytest.raises(SinkError, match="setTransactionRetentionDuration"):
        driver.sink.commit(cycle, nowhere)


def _constrained(path: Path) -> None:
    make(path).alter.add_constraint({"positive": "price > 0"})


def _generated(path: Path) -> None:
    columns = [*Schema.from_arrow(ROWS_SCHEMA).fields]
    generated = Field("double", PrimitiveType("long"), metadata={"delta.generationExpression": "id * 2"})
    DeltaTable.create(str(path), Schema([*columns, generated]))


def _row_tracking(path: Path) -> None:
    make(path).alter.add_feature([TableFeatures.RowTracking, TableFeatures.DomainMetadata], True)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (_constrained, "check constraints"),
        (_generated, "generated columns"),
        (_row_tracking, "rowTracking"),
    ],
)
def test_features_that_a_load_would_write_past(path: Path, made: Callable[[Path], None], named: str) -> None:
    made(path)
    with pytest.raises(SinkError, match=named):
        Driver(DeltaSink(path)).prepared()


def test_column_mapping_is_refused(path: Path) -> None:
    make(path)
    log = path / "_delta_log" / f"{0:020d}.json"
    log.write_text(
        log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}')
    )
    with pytest.raises(SinkError, match="column mapping"):
        Driver(DeltaSink(path)).prepared()


def test_an_append_only_table_is_loaded_but_not_rewound(path: Path) -> None:
    make(path, configuration={"delta.appendOnly": "true"})
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10))
    before = driver.next_offset()
    with pytest.raises(SinkError, match="append-only"):
        driver.load(step(0, 5, 10))
    assert driver.next_offset() == before
    assert offsets(rows(path)) == list(range(10))


def test_a_table_that_could_have_deletion_vectors(path: Path) -> None:
    """It has none yet, so that rows can be replaced; files are joined by others."""
    make(path).alter.add_feature([TableFeatures.DeletionVectors], True)
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10))
    driver.load(step(0, 5, 15))
    assert sorted(pa.table(DeltaTable(str(path)).scan())["_offset"].to_pylist()) == list(range(15))


def test_an_object_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s3://lake/orders.*not supported"):
        DeltaSink("s3://lake/orders")


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="target_file_size"):
        DeltaSink("orders", target_file_size=0)
    with pytest.raises(ConfigError, match="snappy"):
        DeltaSink("orders", compression="snapy")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressions(path: Path, compression: str) -> None:
    driver = Driver(DeltaSink(path, compression=compression)).prepared()
    driver.load(step(0, 0, 5))
    assert offsets(rows(path)) == list(range(5))


def test_what_was_not_prepared_cannot_write(path: Path) -> None:
    sink = DeltaSink(path)
    assert list(sink.standing("lake", []).values()) == []
    assert sink.read_rejected().num_rows == 0
    assert sink.lost("lake") == []
    assert sink.compact(1 << 20, nowhere) == 0
    assert sink.vacuum() == 0
    assert sink.range_start("orders", 0, 5) is None
    with pytest.raises(MisuseError, match="prepare"):
        sink.writer("cycle")


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (pa.schema([pa.field("a b", pa.string()), *ROWS_SCHEMA]), "a b"),
        (pa.schema([pa.field("ID", pa.int64()), *ROWS_SCHEMA]), "id"),
    ],
)
def test_names_that_delta_does_not_have(path: Path, schema: pa.Schema, named: str) -> None:
    with pytest.raises(SchemaConflictError, match=named):
        DeltaSink(path).prepare("lake", Tables(schema, REJECTED_SCHEMA))
    assert not path.exists()


def test_a_column_that_must_not_be_null(path: Path) -> None:
    make(path, pa.schema([*ROWS_SCHEMA, pa.field("must", pa.int64(), nullable=False)]))
    with pytest.raises(SchemaConflictError, match="must"):
        Driver(DeltaSink(path)).prepared()


def test_a_column_that_may_be_null_in_the_load_only(path: Path) -> None:
    make(path, pa.schema([pa.field("id", pa.int64(), nullable=False), *list(ROWS_SCHEMA)[1:]]))
    with pytest.raises(SchemaConflictError, match="id must not be null"):
        Driver(DeltaSink(path)).prepared()


def test_a_column_spelt_otherwise(path: Path) -> None:
    make(path, pa.schema([pa.field("Price", pa.float64()), *[f for f in ROWS_SCHEMA if f.name != "price"]]))
    with pytest.raises(SchemaConflictError, match="price is spelt Price"):
        Driver(DeltaSink(path), Tables(ROWS_SCHEMA, REJECTED_SCHEMA, add_columns=True)).prepared()


def test_rows_of_others_stay(path: Path) -> None:
    """A table that was there, with rows of its own, which have no positions."""
    strange = [{"id": 1, "price": 1.0, "run": "theirs"}]
    write_deltalake(str(path), pa.Table.from_pylist(strange, ROWS_SCHEMA))
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 5))
    driver.load(step(0, 0, 5), run="again")
    assert sorted(row["run"] for row in rows(path)) == ["again"] * 5 + ["theirs"]


# -- partitioned tables


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
    with pytest.raises(SinkError, match=r"partitioned by \(run\), not by \(id\)"):
        DeltaSink(path).prepare("lake", Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("id",)))


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


# -- under other hands


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
    assert offsets(DeltaTable(str(path), version=1).to_pyarrow_table().to_pylist()) == list(range(10))


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
    cycle = driver.plan(step(0, 5, 10))
    min(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()
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
