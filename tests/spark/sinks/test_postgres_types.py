"""Arrow's values in PostgreSQL's columns: what goes in by binary COPY comes out the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.sinks.base import SchemaConflictError, SinkError, Tables
from millstream.spark.sinks.json_values import headers_of, texts
from millstream.spark.sinks.partitioning import DERIVED
from millstream.spark.sinks.postgres.types import holds
from tests.spark.sinks.driving import (
    HEADERS,
    NOON,
    RAW_SCHEMA,
    RAW_TABLES,
    REJECTED_SCHEMA,
    ROWS_SCHEMA,
    nowhere,
    rejected_batch,
    step,
)
from tests.spark.sinks.postgres_site import PostgresSite
from tests.spark.sinks.site import another

PLACE = list(ROWS_SCHEMA)[3:]


@pytest.fixture
def site(postgres_url: str) -> Iterator[PostgresSite]:
    site = PostgresSite(postgres_url)
    yield site
    site.close()


def stored(site: PostgresSite, column: pa.Array) -> list[Any]:
    """Load one column, and read it back."""
    schema = pa.schema([pa.field("it", column.type), *PLACE])
    count = len(column)
    place = [["orders"] * count, [0] * count, list(range(count)), [NOON] * count]
    arrays = [column, *(pa.array(values, field.type) for values, field in zip(place, PLACE, strict=True))]
    load(site, Tables(schema, None), pa.RecordBatch.from_arrays(arrays, schema=schema))
    return [row["it"] for row in sorted(site.rows(), key=lambda row: int(row["_offset"]))]


def load(site: PostgresSite, tables: Tables, batch: pa.RecordBatch) -> None:
    driver = another(site, tables)
    output = driver.sink.writer("typed").open()
    try:
        output.write_rows(batch)
    except BaseException:
        output.abort()
        raise
    cycle = replace(driver.plan(step(0, 0, 0)), written=(output.finish(),))
    driver.sink.commit(cycle, nowhere)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-128, None, 127]),
        (pa.uint16(), [0, None, 65535]),
        (pa.uint32(), [0, None, 2**32 - 1]),
        (pa.float64(), [1e308, -0.0, None, math.inf, -math.inf]),
        (
            pa.decimal128(38, 10),
            [Decimal("-9999999999999999999999999999.0123456789"), None, Decimal("0E-10")],
        ),
        (pa.decimal128(5, 0), [Decimal(99999), Decimal(-1)]),
        (pa.date32(), [date(1, 1, 1), None, date(2000, 1, 1), date(9999, 12, 31)]),
        (pa.timestamp("us"), [datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)]),
        (pa.timestamp("ms", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), None]),
        (pa.timestamp("ns", "UTC"), [datetime(2026, 1, 1, 0, 0, 0, 1, UTC), None]),
        (pa.large_string(), ["a", None, "", "漢\U0001f600"]),
        (pa.large_binary(), [b"\0", None, b""]),
        (pa.list_(pa.int64()), [[1, None, 3], None, [], [2**63 - 1]]),
        (pa.list_(pa.bool_()), [[True], None, [False, None]]),
        (pa.list_(pa.binary()), [[b"\xff", None, b""], [b""]]),
        (pa.list_(pa.decimal128(9, 2)), [[Decimal("1.50"), None], None, [], [Decimal("-0.01")]]),
        (pa.list_(pa.timestamp("us", "UTC")), [[NOON], None, []]),
        (pa.list_(pa.string()), [None, None]),
        (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": ["x"]}, None]),
        (pa.map_(pa.string(), pa.float64()), [[("a", 1.5), ("b", None)], None, []]),
    ],
    ids=str,
)
def test_values(site: PostgresSite, kind: pa.DataType, values: list[Any]) -> None:
    found = stored(site, pa.array(values, kind))
    wanted = [dict(value) if pa.types.is_map(kind) and value is not None else value for value in values]
    assert [bytes(each) if isinstance(each, memoryview) else each for each in found] == wanted


def test_nested_values_that_json_lacks(site: PostgresSite) -> None:
    kind = pa.struct(
        [
            ("n", pa.float64()),
            ("b", pa.binary()),
            ("d", pa.decimal128(5, 2)),
            ("m", pa.map_(pa.int32(), pa.date32())),
        ]
    )
    value = {"n": math.nan, "b": b"\xff", "d": Decimal("1.50"), "m": [(1, date(2026, 3, 1))]}
    found = stored(site, pa.array([value], kind))
    assert found == [{"n": "nan", "b": "/w==", "d": 1.5, "m": [[1, "2026-03-01"]]}]


def test_nested_decimals_are_exact_numbers() -> None:
    most = Decimal("-9999999999999999999999999999.0123456789")
    kind = pa.struct([("\u00e9", pa.list_(pa.decimal128(38, 10))), ("t", pa.string())])
    found = texts(pa.array([{"\u00e9": [most, None, Decimal("0E-10")], "t": 'a"b'}, None], kind)).to_pylist()
    assert found == [f'{{"\u00e9":[{most},null,0.0000000000],"t":"a\\"b"}}'.encode(), None]


def test_pieces_of_arrays(site: PostgresSite) -> None:
    """A slice of a larger array has its own beginning, which nested arrays are easily wrong about."""
    lists = pa.array([[9], [1, 2], None, [], [3], [9]], pa.list_(pa.int32())).slice(1, 4)
    assert stored(site, lists) == [[1, 2], None, [], [3]]


def test_a_null_list_may_hide_values(site: PostgresSite) -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), mask=pa.array([True, False])
    )
    assert stored(site, hidden) == [None, ["c"]]


def test_many_rows_go_in_pieces(site: PostgresSite) -> None:
    count = 70_000
    column = pa.array([None if number % 7 == 0 else "x" * (number % 50) for number in range(count)])
    assert stored(site, column) == column.to_pylist()


def test_large_values(site: PostgresSite) -> None:
    values = [b"a" * (20 << 20), None, b"b" * (20 << 20)]
    assert [value and len(value) for value in stored(site, pa.array(values))] == [20 << 20, None, 20 << 20]


@pytest.mark.parametrize("headers", [[("a", b"1"), ("a", None)], [], None, [("nul\0", b"\0\xff")]], ids=repr)
def test_headers_come_back(site: PostgresSite, headers: list[tuple[str, bytes | None]] | None) -> None:
    value = None if headers is None else [{"key": key, "value": data} for key, data in headers]
    row = {"topic": "orders", "partition": 0, "offset": 0, "timestamp": NOON, "key": None, "value": b""}
    load(site, RAW_TABLES, pa.RecordBatch.from_pylist([row | {"headers": value}], RAW_SCHEMA))
    assert headers_of(site.rows()[0]["headers"]) == value


# -- what PostgreSQL cannot hold


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["fine", "a\0b"]), r"orders-0 offset 1: it has the character U\+0000.*BINARY"),
        (pa.array([["fine"], ["x", "\0"]]), r"offset 1: it has the character U\+0000"),
        (pa.array([{"a": "fine"}, {"a": "\0"}]), r"offset 1: it has the character U\+0000"),
        (pa.array([0, -(2**62)]).view(pa.timestamp("us", "UTC")), "offset 1: it is a point in time"),
        (pa.array([0, 2**62]).view(pa.timestamp("s", "UTC")), "offset 1: it is a point in time"),
        (pa.array([0, -(2**31)], pa.int32()).view(pa.date32()), "offset 1: it is a date"),
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_named(site: PostgresSite, column: pa.Array, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        stored(site, column)
    assert site.rows() == []
    assert not site.staged()


def test_refusals_are_told_ahead(site: PostgresSite) -> None:
    driver = another(site)
    batch = pa.RecordBatch.from_pylist([{"run": "a"}, {"run": "a\0"}, {"run": None}], ROWS_SCHEMA)
    writer = driver.sink.writer("c")
    reasons = writer.refusals(batch)  # type: ignore[attr-defined]
    assert reasons.to_pylist() == [
        None,
        "run has the character U+0000, which PostgreSQL's text cannot hold",
        None,
    ]
    assert writer.refusals(batch.slice(0, 1)) is None  # type: ignore[attr-defined]


def test_a_reason_may_quote_what_does_not_fit(site: PostgresSite) -> None:
    driver = another(site)
    output = driver.sink.writer("c").open()
    output.write_rejected(rejected_batch("orders", 0, [0], "expected LONG, got 'a\0'"))
    cycle = replace(driver.plan(step(0, 0, 0)), written=(output.finish(),))
    driver.sink.commit(cycle, nowhere)
    assert [row["reason"] for row in site.rejected()] == ["expected LONG, got 'a\\u0000'"]
    assert driver.sink.read_rejected().schema.equals(REJECTED_SCHEMA)


def test_a_type_without_a_column(site: PostgresSite) -> None:
    with pytest.raises(SinkError, match="no column for the type time64"):
        another(site, Tables(pa.schema([pa.field("at", pa.time64("us")), *PLACE]), None))


# -- tables that are there already


@pytest.mark.parametrize(
    ("column", "wanted", "fits"),
    [
        ("bigint", "integer", True),
        ("integer", "bigint", False),
        ("numeric", "numeric(10,2)", True),
        ("numeric(12,4)", "numeric(10,2)", True),
        ("numeric(10,4)", "numeric(10,2)", False),
        ("numeric(12,1)", "numeric(10,2)", False),
        ("character varying", "text", True),
        ("character varying(10)", "text", False),
        ("timestamp without time zone", "timestamp with time zone", False),
        ("double precision", "real", True),
        ("bigint[]", "integer[]", False),
    ],
)
def test_which_columns_hold_which_values(column: str, wanted: str, fits: bool) -> None:
    assert holds(column, wanted) is fits


def test_a_table_of_ones_own(site: PostgresSite) -> None:
    """Made by hand: wider types, a key, a default, a constraint; the load fills its own columns."""
    site.run(
        'CREATE TABLE {} ("key" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id numeric, price float, '
        "run varchar, note text DEFAULT 'loaded', _topic text, _partition bigint, _offset bigint NOT NULL, "
        "_timestamp timestamptz, UNIQUE (_topic, _partition, _offset))"
    )
    another(site).load(step(0, 0, 3))
    assert sorted((row["id"], row["note"]) for row in site.rows()) == [(n, "loaded") for n in range(3)]


def test_a_column_that_nobody_fills(site: PostgresSite) -> None:
    site.run(
        "CREATE TABLE {} (id bigint, price float, run text, must int NOT NULL, _topic text, _partition int, "
        "_offset bigint, _timestamp timestamptz)"
    )
    with pytest.raises(SchemaConflictError, match="must must not be null, and the load does not fill it"):
        another(site)


def test_partitions_are_made_by_hand(site: PostgresSite) -> None:
    tables = Tables(ROWS_SCHEMA, None, partition_by=("_partition",))
    with pytest.raises(SinkError, match=r"PARTITION BY \(_partition\)"):
        another(site, tables)
    site.run(
        "CREATE TABLE {} (id bigint, price float, run text, _topic text, _partition int, _offset bigint, "
        "_timestamp timestamptz) PARTITION BY LIST (_partition)"
    )
    site.run('CREATE TABLE {}."first" PARTITION OF {} FOR VALUES IN (0)', schema=True)
    another(site, Tables(ROWS_SCHEMA, REJECTED_SCHEMA, partition_by=("_partition",))).load(step(0, 0, 3))
    assert len(site.read("first")) == 3


def test_a_partitioned_table_remembers_its_columns(site: PostgresSite) -> None:
    """How a partition column is derived is kept as its comment, unless the user has written one."""
    day = pa.field("day", pa.date32(), metadata={DERIVED: "date(_timestamp)"})
    tables = Tables(ROWS_SCHEMA.append(day), None, partition_by=("day",))
    assert site.sink().partitioned_by() == ()
    site.run(
        "CREATE TABLE {} (id bigint, price float, run text, _topic text, _partition int, _offset bigint, "
        "_timestamp timestamptz, day date) PARTITION BY RANGE (day)"
    )
    site.sink().prepare("lake", Tables(ROWS_SCHEMA.append(pa.field("day", pa.date32())), None))
    assert site.sink().partitioned_by() == ("day",)
    with pytest.raises(SinkError, match=r"is partitioned by \(day\), and cannot be partitioned by \(id\)"):
        site.sink().prepare("lake", Tables(ROWS_SCHEMA, None, partition_by=("id",)))
    site.sink().prepare("lake", tables)
    assert site.sink().partitioned_by() == ("date(_timestamp) AS day",)
    other = ROWS_SCHEMA.append(pa.field("day", pa.date32(), metadata={DERIVED: "date(made)"}))
    with pytest.raises(SinkError, match=r"by \(date\(_timestamp\) AS day\), and .*\(date\(made\) AS day\)"):
        site.sink().prepare("lake", Tables(other, None, partition_by=("day",)))
    site.run("COMMENT ON COLUMN {}.day IS 'the day of the order'")
    site.sink().prepare("lake", tables)
    assert site.sink().partitioned_by() == ("day",)


def test_not_null_is_kept(site: PostgresSite) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(ROWS_SCHEMA)[1:]])
    batch = pa.RecordBatch.from_pylist([{"_topic": "orders", "_partition": 0, "_offset": 0}], ROWS_SCHEMA)
    with pytest.raises(SinkError, match='null value in column "id"'):
        load(site, Tables(schema, None), batch)


def test_headers_have_the_type_that_the_source_gives() -> None:
    from millstream.spark.reading.schema import arrow_types

    assert arrow_types()["headers"] == HEADERS
