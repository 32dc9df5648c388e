"""Checks that are evaluated in the task mean exactly what they mean in Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.spark.load.pipeline import checks, ddl
from millstream.spark.load.pipeline.check_parser import NotSimpleError

DDL = (
    "b BYTE, i INT, n LONG, x DOUBLE, f FLOAT, s STRING, t STRING, flag BOOLEAN, d DECIMAL(10,2), "
    "e DECIMAL(38,10), day DATE, other DATE, `odd name` LONG, m LONG, at TIMESTAMP, raw BINARY"
)
SCHEMA = ddl.parse(DDL)
VALUES: dict[str, list[Any]] = {
    "b": [None, 0, 1, -128, 127],
    "i": [None, 0, 1, -1, 5, 2**31 - 1],
    "n": [None, 0, 1, -1, 5, 2**53 + 1, 2**63 - 1, -(2**63)],
    "x": [None, 0.0, -0.0, 0.1, 0.5, -1.5, 5.0, math.nan, math.inf, -math.inf, 1e300],
    "f": [None, 0.0, 0.5, math.nan],
    "s": [None, "", "a", "b", "ab", "A", "é", "\U0001f600", "a\nb", "a%b", "a_b", "10", "a "],
    "t": [None, "", "a", "b", "é"],
    "flag": [None, True, False],
    "d": [None, Decimal("0.00"), Decimal("0.10"), Decimal("5.00"), Decimal("-1.50"), Decimal("99999999.99")],
    "e": [None, Decimal(0), Decimal("5"), Decimal("0.1"), Decimal("9") * 10**27],
    "day": [None, date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)],
    "other": [None, date(2024, 2, 29), date(1970, 1, 1)],
    "odd name": [None, 1, 2],
    "m": [None, 0, 1, 5],
    "at": [None],
    "raw": [None, b"", b"a"],
}
OPERATORS = ["=", "==", "!=", "<>", "<", "<=", ">", ">="]
CONSTANTS = {
    "b": ["0", "1", "-128", "300"],
    "i": ["0", "-1", "5", "5000000000"],
    "n": ["0", "1", "-1", "999999999999999"],
    "x": ["0", "-0.0", "0.1", "0.5", "5", "1e300", "-1.5", "5E0", ".5", "99999999999999"],
    "s": ["''", "'a'", "'ab'", "'é'", "'\U0001f600'", "'10'", "'a '"],
    "flag": ["true", "FALSE"],
    "d": ["0", "0.1", "0.10", "5", "5.00", "-1.5", "0.001", "99999999999"],
    "e": ["0", "0.1", "5"],
    "day": ["DATE '2024-02-29'", "date '1970-01-01'", "DATE'9999-12-31'"],
    "`odd name`": ["1", "2"],
}  # fmt: skip
PATTERNS = ["'%'", "'a%'", "'_'", "'a_b'", "''", "'%b'", "'a\nb'", "'.*'", "'a.b'", "'[a]'", "'(a)%'"]


def atom(chance: random.Random) -> str:
    column = chance.choice(list(CONSTANTS))
    constant = chance.choice(CONSTANTS[column])
    same = {"s": "t", "day": "other", "n": "m"}
    forms = [
        f"{column} {chance.choice(OPERATORS)} {constant}",
        f"{constant} {chance.choice(OPERATORS)} {column}",
        f"{column} {chance.choice(['', 'NOT '])}BETWEEN {constant} AND {chance.choice(CONSTANTS[column])}",
        f"{column} {chance.choice(['', 'not '])}IN ({', '.join(chance.choices(CONSTANTS[column], k=3))})",
        f"{column} is {chance.choice(['', 'NOT '])}null",
        f"s {chance.choice(['', 'NOT '])}LIKE {chance.choice(PATTERNS)}",
        chance.choice(["flag", "TRUE", "false", "NOT flag", "raw IS NULL", "at IS NOT NULL"]),
    ]
    if column in same:
        forms.append(f"{column}{chance.choice(OPERATORS)}{same[column]}")
    return chance.choice(forms)


def condition(chance: random.Random, depth: int = 2) -> str:
    if depth == 0 or chance.random() < 0.4:
        return atom(chance)
    left, right = condition(chance, depth - 1), condition(chance, depth - 1)
    return chance.choice(
        [
            f"{left} AND {right}",
            f"{left} or {right}",
            f"({left}) AND ({right})",
            f"NOT ({left})",
            f"not {left}",
        ]
    )


def table(seed: int) -> pa.Table:
    chance = random.Random(seed)
    rows = [{name: chance.choice(VALUES[name]) for name in SCHEMA.names} for _ in range(60)]
    rows += [{name: values[place % len(values)] for name, values in VALUES.items()} for place in range(15)]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture
def interpreted(spark: Any) -> Iterator[Any]:
    """Spark without its compiler, which would take a minute for so many expressions."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name in settings:
        spark.conf.unset(name)


def test_the_same_as_spark(interpreted: Any) -> None:
    from pyspark.sql import functions

    chance = random.Random(0)
    conditions = sorted({condition(chance) for _ in range(160)})
    simple = [text for text in conditions if checks.compile_checks([text], SCHEMA) is not None]
    assert len(simple) > 0.9 * len(conditions), "most are evaluated here"
    data = table(0)
    frame = interpreted.createDataFrame(data.to_pylist(), DDL).coalesce(1)
    expected = frame.select(*(functions.expr(text).alias(str(n)) for n, text in enumerate(simple))).toArrow()
    batch = data.combine_chunks().to_batches()[0]
    wrong = {}
    for number, text in enumerate(simple):
        found = checks.compile_check(text, SCHEMA)(batch).to_pylist()
        if found != expected.column(str(number)).to_pylist():
            theirs = expected.column(str(number)).to_pylist()
            wrong[text] = [
                row for row in zip(data.to_pylist(), found, theirs, strict=True) if row[1] != row[2]
            ]
    assert wrong == {}


@pytest.mark.parametrize(
    "text",
    [
        "s = 1", "n = '1'", "n > 0.5", "f > 0", "n + 1 > 0", "abs(n) > 0", "S = 'a'", "n <=> 1",
        "s = \"a\"", "n = 1L", "x > 1.5D", "n = 99999999999999999999", "s LIKE 'a\\%'",
        "s LIKE 'a' ESCAPE '!'", "s = 'a''b'", "day > '2024-01-01'", "at > TIMESTAMP '2024-01-01'",
        "nothing = 1", "n", "(n = 1) = true", "n = m = 1", "n IN (SELECT 1)", "s RLIKE 'a'", "n IS TRUE",
        "x = f", "x = x", "n IS NULL IS NULL", "1 = 1", "n =", "", "batch.n = 1", "n % 2 = 0", "NOT",
        "(n = 1", "n = 1)", "day = DATE '2024-13-01'", "e > 0.00000000000001", "true = flag = true",
        "n = NULL", "NULL", "s || t = 'a'", "!flag", "CASE WHEN flag THEN true END", "raw = 'a'",
        "NOT " * 60 + "flag", "n BETWEEN 1", "n IN ()", "n IN (1", "x > 12345678901234567.0",
        "n = 1 -- one",
    ],
)  # fmt: skip
def test_what_is_left_to_spark(text: str) -> None:
    with pytest.raises(NotSimpleError):
        checks.compile_check(text, SCHEMA)
