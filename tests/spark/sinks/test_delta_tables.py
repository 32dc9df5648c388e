"""Delta tables as they are found: of others, with features, with other columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType

from millstream.errors import ConfigError, MisuseError
from millstream.spark.sinks.base import SchemaConflictError, SinkError, Tables
from millstream.spark.sinks.delta.sink import COMPRESSIONS, DeltaSink
from tests.spark.sinks.driving import (
    RAW_TABLES,
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    Driver,
    nowhere,
    offsets,
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


def test_a_table_for_each_topic_is_another_sink() -> None:
    with pytest.raises(ConfigError, match=r"lake/\{topic\}, use DeltaTopicsSink"):
        DeltaSink("lake/{topic}")


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


def test_rejected_rows_of_a_table_that_others_changed(path: Path) -> None:
    """Divided by a column, and given one more: both are there when the rows are read."""
    rejected = path.with_name("orders_rejected")
    make(rejected, REJECTED_SCHEMA, partition_by=["partition"])
    driver = Driver(DeltaSink(path)).prepared()
    assert driver.sink.read_rejected().schema.names == REJECTED_SCHEMA.names
    driver.load(step(0, 0, 10, bad={2, 3}), step(1, 0, 10, bad={4}))
    DeltaTable(str(rejected)).alter.add_columns([Field("seen_by", PrimitiveType("string"))])
    driver.load(step(0, 10, 20, bad={12}))
    found = driver.sink.read_rejected().to_pylist()
    assert offsets(found, 0) == [2, 3, 12] and offsets(found, 1) == [4]
    assert {row["seen_by"] for row in found} == {None}
    assert [row["offset"] for row in driver.sink.read_rejected(2).to_pylist()] == [12, 4]


def test_rejected_rows_of_a_table_that_could_have_deletion_vectors(path: Path) -> None:
    rejected = path.with_name("orders_rejected")
    make(rejected, REJECTED_SCHEMA).alter.add_feature([TableFeatures.DeletionVectors], True)
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10, bad={2, 3}))
    assert offsets(driver.sink.read_rejected().to_pylist()) == [2, 3]


def test_rejected_rows_that_somebody_deleted(path: Path) -> None:
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 10, bad={2, 3}))
    for file in path.with_name("orders_rejected").glob("*.parquet"):
        file.unlink()
    with pytest.raises(SinkError, match="orders_rejected cannot be read"):
        driver.sink.read_rejected()


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        ("hdfs://name/orders", {}, "HDFS is not supported yet"),
        ("s4://lake/orders", {}, "s3://"),
        ("ftp://lake/orders", {}, "Use a directory, s3://"),
        ("s3://lake", {}, "s3://BUCKET/PATH"),
        ("s3://key:secret@lake/orders", {}, "no login"),
        ("orders", {"region": "eu-west-1"}, "is a directory"),
        ("s3://lake/orders", {"aws_s3_allow_unsafe_rename": "true"}, "conditional puts"),
        ("s3://lake/orders", {"conditional_put": "disabled"}, "conditional puts"),
        ("s3://lake/orders", {"endpoint": "http://127.0.0.1:1"}, "allow_http"),
        ("s3://lake/orders", {"nonsense": "x"}, "nonsense"),
        ("s3://lake/orders", {"region": "a", "AWS_REGION": "b"}, "twice"),
    ],
)
def test_places_and_options_that_are_refused(address: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        DeltaSink(address, storage_options=options)
    assert "secret" not in str(refused.value).replace("aws_secret", "")


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
    with pytest.raises(SchemaConflictError, match="price is spelled Price"):
        Driver(DeltaSink(path), Tables(ROWS_SCHEMA, REJECTED_SCHEMA, add_columns=True)).prepared()


@pytest.mark.parametrize(
    ("there", "ours", "said"),
    [
        (pa.int64(), pa.int32(), "s.items.element.n is long there and integer in the load"),
        (pa.list_(pa.string()), pa.string(), "s.items.element.n is array there and string in the load"),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.string()), "n.value is long there"),
        (
            pa.struct([("a", pa.int64())]),
            pa.struct([("b", pa.int64())]),
            "n.b is missing there and long in the load",
        ),
    ],
)
def test_a_nested_type_that_differs_is_named_by_its_path(
    path: Path, there: pa.DataType, ours: pa.DataType, said: str
) -> None:
    def nested(kind: pa.DataType) -> pa.Schema:
        many = [(f"c{number}", pa.string()) for number in range(30)]
        items = pa.list_(pa.struct([*many, ("n", kind)]))
        return ROWS_SCHEMA.append(pa.field("s", pa.struct([*many, ("items", items)])))

    make(path, nested(there))
    with pytest.raises(SchemaConflictError) as raised:
        Driver(DeltaSink(path), Tables(nested(ours), REJECTED_SCHEMA)).prepared()
    assert said in str(raised.value)
    assert len(str(raised.value)) < 400


def test_rows_of_others_stay(path: Path) -> None:
    """A table that was there, with rows of its own, which have no positions."""
    strange = [{"id": 1, "price": 1.0, "run": "theirs"}]
    write_deltalake(str(path), pa.Table.from_pylist(strange, ROWS_SCHEMA))
    driver = Driver(DeltaSink(path)).prepared()
    driver.load(step(0, 0, 5))
    driver.load(step(0, 0, 5), run="again")
    assert sorted(row["run"] for row in rows(path)) == ["again"] * 5 + ["theirs"]
