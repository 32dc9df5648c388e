"""The columns of JSON values that come without a schema."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import ConfigError
from millstream.scanning.inference import infer
from millstream.spark.load.pipeline.formats.json import JsonParser


def columns(*values: Any) -> dict[str, Any] | None:
    found = infer(None if each is None else json.dumps(each).encode() for each in values)
    return None if found is None else {field.name: field.type for field in found}


def test_types() -> None:
    found = columns({"a": 1, "b": 1.5, "c": "2026-01-31", "d": True, "e": None, "f": [], "g": {}})
    assert found == {
        "a": pa.int64(),
        "b": pa.float64(),
        "c": pa.string(),
        "d": pa.bool_(),
        "e": pa.string(),
        "f": pa.list_(pa.field("element", pa.string())),
        "g": pa.map_(pa.string(), pa.string()),
    }


def test_values_are_taken_together() -> None:
    found = columns({"a": 1, "s": {"x": 1}}, None, {"a": 2.5, "l": [None, 1]}, {"s": {"x": None, "y": "t"}})
    assert found == {
        "a": pa.float64(),
        "s": pa.struct([("x", pa.int64()), ("y", pa.string())]),
        "l": pa.list_(pa.field("element", pa.int64())),
    }
    assert columns({"a": 2**63}) == {"a": pa.float64()}


def test_what_is_no_object_says_nothing() -> None:
    assert columns(None, 1, "x", [1]) is None
    assert infer([b"{", b"\xff", b"[" * 100_000]) is None
    assert columns({}) == {}


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (1, "x", "a is a int64 in some values and a string in others"),
        (True, 1, "a is a bool in some"),
        ({"x": [1]}, {"x": ["t"]}, r"a\.x\[\] is a int64 in some"),
        ({"x": 1}, [1], "a is an object in some values and an array in others"),
    ],
)
def test_contradictions_are_named(one: Any, other: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        columns({"a": one}, {"a": other})


def test_endless_depth_is_refused() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        infer([b'{"a":' * 200 + b"1" + b"}" * 200])


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)
)


@given(st.dictionaries(st.text(min_size=1, max_size=4), VALUES, max_size=4))
def test_a_value_fits_the_columns_that_are_inferred_from_it(value: dict[str, Any]) -> None:
    raw = json.dumps(value).encode()
    schema = infer([raw])
    assert schema is not None
    parsed = JsonParser(schema).parse(pa.array([raw], pa.binary()))
    assert not parsed.bad, parsed.reasons
