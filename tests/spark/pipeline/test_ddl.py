"""Our reading of DDL is Spark's, and so are the types."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.spark_schema import arrow_schema

TEXTS = [
    "id LONG, price DOUBLE, tags ARRAY<STRING>, at TIMESTAMP, d DECIMAL(10,2) NOT NULL",
    "a: int, b: map<string, array<int>>",
    "s STRUCT<x: INT, y STRING, z: STRUCT<w: DATE>>",
    "`a b` INT COMMENT 'x', `a``b` tinyint",
    "a DECIMAL, b NUMERIC(5), c DEC(3,1), d REAL, e FLOAT",
    "a TIMESTAMP_NTZ, b TIMESTAMP_LTZ, c DATE, date DATE, timestamp INT, order INT",
    "a BOOLEAN, b BYTE, c TINYINT, d SHORT, e SMALLINT, f INTEGER, g BIGINT, h BINARY, 1a STRING",
    'a INT NOT NULL COMMENT "y", b STRING',
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_same_as_spark(spark: Any, text: str) -> None:
    from pyspark.sql.types import DataType

    theirs: Any = DataType.fromDDL(text)
    ours = ddl.parse(text)
    assert arrow_schema(theirs, "it") == ddl.parse(text.replace(" NOT NULL", ""))
    assert [field.nullable for field in ours] == [field.nullable for field in theirs.fields]
    assert DataType.fromDDL(ddl.render(ours)) == DataType.fromDDL(ddl.render(ddl.parse(ddl.render(ours))))
    assert arrow_schema(DataType.fromDDL(ddl.render(ours)), "it") == arrow_schema(theirs, "it")
