"""Confluent's wire format."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.registry import framing


@given(st.integers(0, 2**31 - 1), st.binary())
def test_an_id_comes_back_with_the_data(schema_id: int, payload: bytes) -> None:
    framed = framing.with_id(schema_id, payload)
    assert framed[0] == 0 and len(framed) == 5 + len(payload)
    assert framing.split("value", (), framed) == (schema_id, payload)


def test_a_guid_before_the_data_and_in_a_header() -> None:
    guid = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")
    assert framing.split("value", (), b"\x01" + guid.bytes + b"data") == (guid, b"data")
    headers = [("__value_schema_id", b"\x00\x00\x00\x00\x01"), ("__value_schema_id", b"\x01" + guid.bytes)]
    assert framing.split("value", headers, b"data") == (guid, b"data")
    assert framing.split("key", headers, b"\x00\x00\x00\x00\x07data") == (7, b"data")
    assert framing.split("key", [("__key_schema_id", b"\x00\x00\x00\x00\x02")], b"") == (2, b"")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00", b"\x01" * 16, b"{}", b"\x02" * 20])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="without a schema registry"):
        framing.split("value", (), data)


def test_a_header_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="has 6 bytes instead of 5"):
        framing.split("value", [("__value_schema_id", b"\x00" * 6)], b"data")
