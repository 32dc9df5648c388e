"""A block of CSV is read as its values are one by one: the same rows, the same reasons."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats.csv import CsvParser
from millstream.spark.load.pipeline.formats.csv_rows import CsvRows
from millstream.spark.load.pipeline.formats.parsed import one_by_one

SCHEMA = ddl.parse(
    "id LONG NOT NULL, small BYTE, price DOUBLE, single FLOAT, name STRING, flag BOOLEAN, d DECIMAL(6,2), "
    "day DATE, at TIMESTAMP, blob BINARY"
)


def check(values: Sequence[bytes | None], schema: pa.Schema = SCHEMA, quote: str = '"') -> None:
    expected = one_by_one(schema, CsvRows(schema, ",", quote).convert, values, range(len(values)))
    found = CsvParser(schema, ",", quote).parse(pa.array(values, pa.binary()))
    assert dict(zip(found.bad, found.reasons, strict=True)) == dict(
        zip(expected.bad, expected.reasons, strict=True)
    )
    assert (list(range(len(values))) if found.good is None else found.good.tolist()) == expected.good
    assert found.rows.schema == schema
    assert found.rows.to_pylist() == expected.rows.to_pylist()


FITTING = [
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.integers(-128, 127).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.text(max_size=5).filter(lambda text: not set(text) & set(',"\r\n')),
    st.sampled_from(["true", "FALSE", "True"]),
    st.decimals("-9999.99", "9999.99", places=2).map(str),
    st.dates().map(str),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.just("YWJj"),
]
odd = st.one_of(
    st.text(max_size=6),
    st.sampled_from(
        [
            *("", '""', '"a,b"', '"a""b"', '"a', 'a"b', '"a"b', "nan", "inf", "-inf", "1e400", "0x10"),
            *("+1", " 1", "1_000", "1.", ".5", "-", "--1", "99999999999999999999", "128", "1e39"),
            *("2024-13-01", "yes", "\n", "9" * 5000),
            *("1.500", "1e2", "\u0661", "2024-02-29T12:00:00Z", "T", "a\r", "\0"),
        ]
    ),
)  # fmt: skip


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    fields = [draw(field) for field in FITTING]
    for place in draw(st.sets(st.integers(1, len(fields) - 1), max_size=3)):
        fields[place] = ""
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.integers(0, len(fields) - 1))] = draw(odd)
    return ",".join(fields).encode()


@given(st.lists(lines(), min_size=8, max_size=30))
@settings(max_examples=80, deadline=None)
def test_lines(values: list[bytes]) -> None:
    check(values)


@given(
    st.lists(lines() | st.sampled_from([None, b"", b"\xff", b",", b"\n", b"," * 9]), min_size=8, max_size=30)
)
@settings(max_examples=60, deadline=None)
def test_lines_and_odd_values(values: list[bytes | None]) -> None:
    check(values)


@pytest.mark.parametrize("values", [[b"a", b"", None, b"b\n", b'"', b'""', b"\r\n"] * 3, [b"a"] * 20])
def test_a_single_column(values: list[bytes | None]) -> None:
    check(values, ddl.parse("name STRING"))


def test_without_quotes() -> None:
    check([b'"a",1', b"b,2"] * 6, ddl.parse("name STRING, n INT"), quote="")


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b'"a,""b""",1', ['a,"b"', 1]),
        (b'"line\nbreak",1\r\n', ["line\nbreak", 1]),
        (b'"",', ["", None]),
        (b",", [None, None]),
    ],
)
def test_quotes(value: bytes, row: list[object]) -> None:
    assert CsvRows(ddl.parse("name STRING, n INT"), ",", '"').convert(value) == row


def test_no_place_for_arrays() -> None:
    with pytest.raises(ConfigError, match="CSV cannot hold ARRAY<LONG>"):
        CsvParser(ddl.parse("a ARRAY<LONG>"), ",", '"')
