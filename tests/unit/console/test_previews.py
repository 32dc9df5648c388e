"""Other people's bytes: bounded, never altered, and nothing in them hides."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.console.views.previews import Preview, preview, visible


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, Preview("null", "", 0)),
        (b"", Preview("empty", "", 0)),
        (b"plain", Preview("text", "plain", 5)),
        ("Größe €".encode(), Preview("text", "Größe €", 11)),
        (b"two\nlines\t", Preview("text", "two\nlines\t", 10)),
        (b"\x00\x01\xff", Preview("hex", "00 01 ff", 3)),
        (b"\xc3\x28", Preview("hex", "c3 28", 2)),
        (b"\x1b[31mred", Preview("hex", "1b 5b 33 31 6d 72 65 64", 8)),
        (b"42", Preview("text", "42", 2)),
        (b'"text"', Preview("text", '"text"', 6)),
        (b"{}", Preview("json", "{}", 2)),
        (b'{"id":1, "a": 2}', Preview("json", '{"id":1, "a": 2}', 16)),
        (b'[1,\n{"a":[]}]', Preview("json", '[\n  1,\n  {\n    "a": []\n  }\n]', 13)),
        (b"{not json}", Preview("text", "{not json}", 10)),
        (b"{'a': 1}", Preview("text", "{'a': 1}", 8)),
    ],
)
def test_the_best_form_there_is(raw: bytes | None, expected: Preview) -> None:
    assert preview(raw, 1000) == expected


def test_json_keeps_its_numbers_and_its_repeated_names() -> None:
    raw = b'{"a":1.10,"a":1e400,"b":123456789012345678901234567890,"c":"a,b:{[ \\" "}'
    found = preview(raw, 1000)
    assert found.kind == "json"
    assert found.text == (
        '{\n  "a": 1.10,\n  "a": 1e400,\n  "b": 123456789012345678901234567890,\n  "c": "a,b:{[ \\" "\n}'
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_indented_json_means_the_same(value: object) -> None:
    raw = json.dumps([value], ensure_ascii=False).encode(errors="surrogatepass")
    found = preview(raw, 100_000)
    if found.kind == "json" and "\\u" not in found.text and "\\U" not in found.text:
        assert json.loads(found.text) == [value]


@given(st.binary(max_size=300), st.integers(1, 50))
def test_anything_can_be_shown_within_its_limit(raw: bytes, limit: int) -> None:
    found = preview(raw, limit)
    assert found.size == len(raw)
    assert found.is_cut == (len(raw) > limit)
    assert len(found.text) <= 10 * 8 * limit + 2048


def test_what_is_long_is_cut_between_characters() -> None:
    assert preview("aé".encode() * 10, 4) == Preview("text", "aéa", 30, is_cut=True)
    assert preview(b"x" * 100, 10) == Preview("text", "x" * 10, 100, is_cut=True)
    assert preview(b'{"a": 1}', 4).kind == "text", "half an object is none"
    assert preview(b"[1] is not all", 3) == Preview("text", "[1]", 14, is_cut=True)
    assert preview(b"\xff" * 1000, 1000) == Preview("hex", " ".join(["ff"] * 256), 1000, is_cut=True)


def test_deep_json_is_no_way_to_make_it_long() -> None:
    deep = b"[" * 900 + b"]" * 900
    assert len(preview(deep, 10_000).text) < 20_000
    assert preview(b"[" * 100_000 + b"]" * 100_000, 1 << 20).kind == "text"


def test_nothing_hides() -> None:
    assert visible("plain ünï") == "plain ünï"
    assert visible("a\u202eb") == "a\\u202eb"
    assert visible("zero\u200bwidth") == "zero\\u200bwidth"
    assert preview("pay\u202etxt".encode(), 100).text == "pay\\u202etxt"
