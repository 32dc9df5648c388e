"""A block of JSON is read as its values are one by one: the same rows, the same reasons."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats import json_scan
from millstream.spark.load.pipeline.formats.json import JsonParser
from millstream.spark.load.pipeline.formats.json_rows import JsonRows
from millstream.spark.load.pipeline.formats.parsed import one_by_one

SCHEMA = ddl.parse(
    "id LONG NOT NULL, small BYTE, price DOUBLE, single FLOAT, name STRING, flag BOOLEAN, "
    "amount DECIMAL(6,2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, blob BINARY, tags ARRAY<STRING>, "
    "inner STRUCT<x: INT, y: ARRAY<DOUBLE>>"
)
NAMES = SCHEMA.names


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    json_scan.compiled()


def check(values: Sequence[bytes | None], schema: pa.Schema = SCHEMA) -> None:
    """Both ways of reading agree."""
    expected = one_by_one(schema, JsonRows(schema).convert, values, range(len(values)))
    found = JsonParser(schema).parse(pa.array(values, pa.binary()))
    assert dict(zip(found.bad, found.reasons, strict=True)) == dict(
        zip(expected.bad, expected.reasons, strict=True)
    )
    good = list(range(len(values))) if found.good is None else found.good.tolist()
    assert good == expected.good
    assert found.rows.schema == schema
    assert found.rows.to_pylist() == expected.rows.to_pylist()
    found.rows.validate(full=True)


# --- generated values: mostly right, so that the fast path is taken, with all kinds of wrong ones between

numbers = st.one_of(
    st.integers(-200, 200),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 1e39, 2**63 - 1, -(2**63), 2**63, 127, 128, -128, -129, 9999.99, 10000, 0.001]),
)
strings = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            *("2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31", "2024-1-2", "2024-02-29Z"),
            *("2024-02-29T12:00:00Z", "2024-02-29 12:00:00.123456+01:00", "2024-02-29T12:00"),
            *("2024-02-29T24:00:00", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"),
            *("2024-02-29T12:00:00.123456789", "2024-02-29T12", "2024-02-29T12:00:60", "2024-02-29T12:00+1"),
            *("2024-02-29T12:00:00+0130", "2024-02-29T12:00:00+25", "1.5", "-.5", "1e2", "12345.678", "0x1"),
            *(
                "abc",
                "YWJj",
                "YWJ",
                "",
                "nan",
                "\u0000",
                "\U0001f600",
                "é",
                "+1",
                " 1",
                "1 ",
                "1e-3",
                "1.500",
            ),
        ]
    ),
)
leaves: Any = st.one_of(st.none(), st.booleans(), numbers, strings)
things = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["x", "y", "z"]), inner, max_size=3)
    ),
    max_leaves=5,
)
FITTING: dict[str, Any] = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "price": st.floats(allow_nan=False, allow_infinity=False),
    "single": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "name": st.text(max_size=8),
    "flag": st.booleans(),
    "amount": st.decimals("-9999.99", "9999.99", places=2).map(str),
    "at": st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    "local": st.datetimes().map(lambda moment: moment.isoformat()),
    "day": st.dates().map(str),
    "blob": st.just("YWJj"),
    "tags": st.lists(st.none() | st.text(max_size=3), max_size=3),
    "inner": st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "y": st.lists(st.floats(-1, 1))}),
}


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """An object of which most fields fit."""
    fields = {name: draw(FITTING[name]) for name in draw(st.permutations(NAMES))[: draw(st.integers(0, 8))]}
    fields.setdefault("id", draw(FITTING["id"]))
    if draw(st.integers(0, 3)) == 0:
        fields[draw(st.sampled_from([*NAMES, "other"]))] = draw(things)
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), ("\n,\t", " :\r\n")]))
    text = json.dumps(fields, separators=separators, ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass")


ODD = [
    *(None, b"", b" ", b"{}", b"null", b"1", b"[]", b'"x"', b"true", b"{", b"}", b"{}{}", b"{}\n{}"),
    *(b'{"id":1}x', b'{"id":1}\0', b'\xef\xbb\xbf{"id":1}', b'{"id":1,}', b"{'id':1}", b'{"id":1}/*c*/'),
    *(b'{"id":1,"id":2}', b'{"id":1,"o":1,"o":2}', b'{"i\\u0064":1}', b'{"id":1,"name":"\\ud800"}'),
    *(b'{"id":1,"name":"\\udc00"}', b'{"id":1,"name":"\\ud83d\\ude00"}', b'{"id":1,"name":"\xff"}'),
    *(b'{"id":1,"o":"\xff"}', b'{"id":1,"o":"\\ud800"}', b'{"id":1,"o":NaN}', b'{"id":1,"price":NaN}'),
    *(b"{},{}", b'{"id":1,"price":Inf}'),
    *(b'{"id":1,"o":-Inf}', b'{"id":1,"price":-Infinity}', b'{"id":1,"price":1e400}'),
    *(b'{"id":1,"o":1e400}', b'{"id":1,"price":01}', b'{"id":1,"price":+1}', b'{"id":1,"price":.5}'),
    *(b'{"id":1,"price":1.}', b'{"id":1,"price":-}', b'{"id":-0}', b'{"id":1.0}', b'{"id":1e2}', b'{"id":-}'),
    *(b'{"id":-9223372036854775808}', b'{"id":9223372036854775808}', b'{"id":' + b"9" * 5000 + b"}"),
    *(b'{"id":1,"o":' + b"9" * 5000 + b"}", b'{"id":1,"o":' + b"[" * 300 + b"]" * 300 + b"}"),
    *(b'{"id":1,"o":' + b"[" * 255 + b"]" * 255 + b"}", b"[" * 100_000, b'{"a":' * 100_000),
    *(b'{"id":1,"o":' + b"[" * 256 + b"]" * 256 + b"}", b'{"id":1,"name":"a\nb"}', b'{"id":1,"name":"a\tb"}'),
    *(b'{"id":\n1\n}', b' \r\n{"id":1}\t ', b'{"id":1]', b'{"id":[1}', b'{"id":nul}', b'{"id":nope}'),
    *(b'{"id":1,"flag":truth}', b'{"id":1:2}', b'{"id" 1}', b'{"id":1 "name":"x"}', b'{"id"}', b'{:1}'),
    *(b'{"id":1,"single":1e39}', b'{"id":1,"single":3.4028235677973366e38}', b'{"id":1,"amount":999999}'),
    *(b'{"id":1,"amount":1.500}', b'{"id":1,"amount":0.000}', b'{"id":1,"amount":"1e-400"}', b'{"id":null}'),
    *(b'{"id":1,"amount":1e-5}', b'{"id":1,"amount":"99999"}', b'{"id":1,"amount":12345.6}'),
]  # fmt: skip


@given(st.lists(objects(), min_size=8, max_size=40))
@settings(max_examples=80, deadline=None)
def test_objects(values: list[bytes]) -> None:
    check(values)


def odd(place: int) -> bytes | None:
    """Not ODD.__getitem__, which Hypothesis would show with all of the list, and call that too much."""
    return ODD[place]


@given(st.lists(st.one_of(objects(), st.integers(0, len(ODD) - 1).map(odd)), min_size=8, max_size=40))
@settings(max_examples=80, deadline=None)
def test_objects_and_odd_values(values: list[bytes | None]) -> None:
    check(values)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:40])
def test_an_odd_value_among_good_ones(odd: bytes | None) -> None:
    good = [b'{"id":%d,"name":"n"}' % number for number in range(20)]
    check([*good, odd, *good])
    check([odd, *good])
    check([*good, odd])


@given(st.lists(objects(), min_size=8, max_size=20), st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
@example([b'{"id":1}'] * 8, random.Random(0))
def test_damaged_objects(values: list[bytes], chance: random.Random) -> None:
    check([damaged(value, chance) if chance.random() < 0.3 else value for value in values])


def damaged(value: bytes, chance: random.Random) -> bytes:
    """One byte gone, doubled or another."""
    at = chance.randrange(len(value))
    put = chance.choice(
        [b"", value[at : at + 1] * 2, bytes([chance.randrange(256)]), b'"', b"}", b"{", b"\n"]
    )
    return value[:at] + put + value[at + 1 :]


def test_pieces_of_an_array() -> None:
    """Batches are often slices of larger arrays."""
    values = pa.array([b'{"id":%d}' % number for number in range(100)], pa.binary()).slice(17, 50)
    found = JsonParser(SCHEMA).parse(values)
    assert found.rows.column("id").to_pylist() == list(range(17, 67))


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_many_bad_rows_in_a_large_block(share: float) -> None:
    """Also those that only pyarrow finds: an amount with too many digits."""
    chance = random.Random(7)
    wrong = [b'{"id":1,"amount":123456789}', b'{"id":1,"day":"2024-13-01"}', b'{"id":1', b'{"price":1}']
    check([chance.choice(wrong) if chance.random() < share else b'{"id":1,"amount":1}' for _ in range(5000)])


def test_a_wide_schema() -> None:
    """More columns than there are bits to note which have been seen."""
    schema = ddl.parse(", ".join(f"c{number} LONG" for number in range(70)))
    row = json.dumps({f"c{number}": number for number in range(70)}).encode()
    twice = row[:-1] + b',"c69":1}'
    check([row] * 10 + [twice] + [row] * 10, schema)


@pytest.mark.parametrize("column", ["m MAP<STRING, LONG>", "s STRUCT<x: LONG NOT NULL>", "a ARRAY<DATE>"])
def test_types_that_only_the_reader_of_rows_knows(column: str) -> None:
    values: list[bytes | None] = [
        b'{"m":{"a":1},"s":{"x":1},"a":["2024-01-01"]}',
        b'{"m":1,"s":{},"a":[1]}',
    ] * 8
    check(values, ddl.parse(column))
