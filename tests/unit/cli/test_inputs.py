"""What ``millstream produce`` makes of its input."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.produce.inputs import Draft, InputError, read_drafts
from millstream.cli.produce.options import InputFormat, InputOptions, format_of


def drafts(text: str | bytes, options: InputOptions) -> list[Draft]:
    raw = text.encode() if isinstance(text, str) else text
    return list(read_drafts(io.BytesIO(raw), options))


LINES = InputOptions(InputFormat.LINES)
JSON = InputOptions(InputFormat.JSON)
CSV = InputOptions(InputFormat.CSV)
RECORDS = InputOptions(InputFormat.RECORDS)


# ---- lines ----


def test_each_line_is_a_record_also_an_empty_or_an_unfinished_one() -> None:
    assert drafts("a\n\nb\r\nlast", LINES) == [Draft(b"a"), Draft(b""), Draft(b"b"), Draft(b"last")]


def test_the_end_of_a_line_is_not_sent_be_it_of_windows_or_not() -> None:
    assert drafts(b"a\r\nb\n", LINES) == [Draft(b"a"), Draft(b"b")]
    assert drafts(b"k:v\r\n", InputOptions(InputFormat.LINES, key_separator=":")) == [Draft(b"v", b"k")]


def test_other_returns_are_part_of_a_line() -> None:
    assert drafts(b"a\r\r\nb\rc\nd\r", LINES) == [Draft(b"a\r"), Draft(b"b\rc"), Draft(b"d\r")]


def test_lines_need_not_be_text() -> None:
    assert drafts(b"\xff\xfe\n", LINES) == [Draft(b"\xff\xfe")]


def test_a_separator_divides_at_its_first_occurrence() -> None:
    options = InputOptions(InputFormat.LINES, key_separator=": ")
    assert drafts("k: a: b\n: v\n", options) == [Draft(b"a: b", b"k"), Draft(b"v", b"")]


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(InputError, match="line 2 has no key separator ':'"):
        drafts("k:v\nkv\n", InputOptions(InputFormat.LINES, key_separator=":"))


# ---- JSON ----


def test_json_lines_are_sent_as_they_stand() -> None:
    assert drafts('{"b": 1,  "a": 2}\n\n  \n[1]\n"x"\n', JSON) == [
        Draft(b'{"b": 1,  "a": 2}'),
        Draft(b"[1]"),
        Draft(b'"x"'),
    ]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"id": "x"}', b"x"),
        ('{"id": 7}', b"7"),
        ('{"id": true}', b"true"),
        ('{"id": null}', None),
        ('{"id": {"b": 1, "a": "é"}}', '{"b":1,"a":"é"}'.encode()),
    ],
)
def test_a_field_is_the_key(line: str, key: bytes | None) -> None:
    assert drafts(line, InputOptions(InputFormat.JSON, key="id")) == [Draft(line.encode(), key)]


def test_dots_lead_into_objects() -> None:
    line = '{"customer": {"id": "c1"}}'
    assert drafts(line, InputOptions(InputFormat.JSON, key="customer.id")) == [Draft(line.encode(), b"c1")]


@pytest.mark.parametrize("line", ['{"other": 1}', "[1]", '"text"'])
def test_a_missing_key_field_is_named(line: str) -> None:
    with pytest.raises(InputError, match="line 1 has no field 'id'"):
        drafts(line, InputOptions(InputFormat.JSON, key="id"))


def test_bad_json_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match="line 3 is not JSON"):
        drafts('1\n2\n{"a": \n', JSON)
    with pytest.raises(InputError, match="line 1 is not JSON"):
        drafts("[" * 100_000, JSON)


# ---- CSV ----


def test_rows_become_objects() -> None:
    text = '\ufeffname,country\nAnn,"a ""b"", c"\n\n"two\nlines",é\n'
    found = drafts(text, InputOptions(InputFormat.CSV, key="country"))
    assert [(json.loads(draft.value or b""), draft.key) for draft in found] == [
        ({"name": "Ann", "country": 'a "b", c'}, b'a "b", c'),
        ({"name": "two\nlines", "country": "é"}, "é".encode()),
    ]


def test_another_delimiter() -> None:
    found = drafts("a;b\n1;2\n", InputOptions(InputFormat.CSV, delimiter=";"))
    assert found == [Draft(b'{"a": "1", "b": "2"}')]


def test_an_empty_file_has_no_rows() -> None:
    assert drafts("", InputOptions(InputFormat.CSV, key="a")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 fields where the header has 2"),
        ('a,b\n"x"y,2\n', "line 2 is not CSV"),
        (b"a,b\n\xff,2\n", "the text is not UTF-8"),
    ],
)
def test_bad_rows_are_named(text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        drafts(text, CSV)


def test_an_unknown_key_column_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"no column 'c' .* a, b"):
        drafts("a,b\n1,2\n", InputOptions(InputFormat.CSV, key="c"))


# ---- records ----


def test_records_carry_everything() -> None:
    line = json.dumps(
        {"value": "v", "key": {"base64": "/w=="}, "headers": [["h", "1"], ["h", None]], "timestamp": 5}
    )
    assert drafts(line, RECORDS) == [Draft(b"v", b"\xff", (("h", b"1"), ("h", None)), 5)]


def test_headers_may_be_an_object_and_values_json_or_null() -> None:
    lines = '{"value": {"a": 1}, "headers": {"h": "x"}}\n{"value": null, "key": "k"}\n'
    assert drafts(lines, RECORDS) == [Draft(b'{"a":1}', None, (("h", b"x"),)), Draft(None, b"k")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "line 1 is not a record"),
        ('{"key": "k"}', "line 1 is not a record"),
        ('{"value": "v", "timestamp": "x"}', "timestamp"),
        ('{"value": "v", "timestamp": true}', "timestamp"),
        ('{"value": "v", "headers": ["ab"]}', "headers"),
        ('{"value": "v", "headers": [["a"]]}', "headers"),
        ('{"value": "v", "headers": [[1, "a"]]}', "headers"),
        ('{"value": "v", "headers": 5}', "headers"),
        ('{"value": {"base64": "?"}}', "base64"),
        ('{"value": {"base64": 7}}', "base64"),
    ],
)
def test_bad_records_are_named(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        drafts(line, RECORDS)


# ---- all ----


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, InputFormat.LINES),
        (Path("a.CSV"), InputFormat.CSV),
        (Path("a.jsonl"), InputFormat.JSON),
        (Path("a.txt"), InputFormat.LINES),
    ],
)
def test_a_file_name_says_its_format(path: Path | None, expected: InputFormat) -> None:
    assert format_of(path) is expected


@given(st.binary(), st.sampled_from(InputFormat), st.sampled_from([None, "id"]))
def test_any_bytes_are_read_or_refused(raw: bytes, input_format: InputFormat, key: str | None) -> None:
    with contextlib.suppress(InputError):
        drafts(raw, InputOptions(input_format, key=key))
