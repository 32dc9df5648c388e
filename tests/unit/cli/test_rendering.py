"""How ``millstream consume`` prints records."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from millstream.cli.consume.options import PrintOptions
from millstream.cli.consume.rendering import renderer
from millstream.cli.produce.inputs import Draft, read_drafts
from millstream.cli.produce.options import InputFormat, InputOptions
from millstream.consumer.decoding.records import Record
from millstream.errors import DeserializationError
from millstream.model import Header, TimestampType
from millstream.terminal.outcome import UsageError

TIME_MS = 1_769_860_800_250


def record(
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    headers: tuple[Header, ...] = (),
    timestamp: int = TIME_MS,
) -> Record:
    return Record("orders", 3, 42, timestamp, TimestampType.CREATE_TIME, key, value, headers, None)


def printed(options: PrintOptions, *records: Record, on_terminal: bool = False) -> str:
    render = renderer(options, on_terminal=on_terminal)
    return b"".join(map(render, records or (record(),))).decode()


def test_text_is_the_value_and_nothing_else() -> None:
    assert printed(PrintOptions(), record(), record(None), record(b"")) == "v\nnull\n\n"


def test_text_in_a_pipe_passes_any_bytes() -> None:
    assert renderer(PrintOptions())(record(b"\xff\x00\x1b[31m")) == b"\xff\x00\x1b[31m\n"


def test_text_on_a_terminal_shows_control_characters() -> None:
    shown = printed(
        PrintOptions(),
        record("é\x1b[31m\x9b\t\n\udc80".encode("utf-8", "surrogatepass")),
        on_terminal=True,
    )
    assert shown == "é\\x1b[31m\\x9b\t\\x0a\\xed\\xb2\\x80\n"


def test_fields_in_front_of_the_value() -> None:
    options = PrintOptions(offsets=True, timestamps=True, headers=True, keys=True)
    line = printed(options, record(headers=(("a", b"1"), ("b", None))))
    assert line == "orders\t3\t42\t2026-01-31T12:00:00.250Z\ta=1,b=null\tk\tv\n"


def test_raw_is_the_bytes() -> None:
    assert renderer(PrintOptions("raw"), on_terminal=True)(record(b"\xff\x1b")) == b"\xff\x1b\n"
    assert renderer(PrintOptions("raw"))(record(None)) == b"\n"


def test_json_has_every_field() -> None:
    line = printed(PrintOptions("json"), record(b"\xff", None, (("h", b"x"),)))
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": TIME_MS,
        "key": None,
        "value": {"base64": "/w=="},
        "headers": [["h", "x"]],
    }


def test_json_values_can_be_json_inside() -> None:
    line = printed(PrintOptions("json", value_format="json"), record(b'{"price": 1.5}'))
    assert json.loads(line)["value"] == {"price": 1.5}


def test_a_template_with_escapes() -> None:
    assert printed(PrintOptions(r"{partition}:{offset}\t{key}={value} \\{{}}")) == "3:42\tk=v \\{}\n"


@pytest.mark.parametrize(
    "template", ["{nothing}", "{value.real}", "{value[0]}", "{0}", "{}", "{value", "{value:d}"]
)
def test_a_bad_template_is_refused_before_anything_is_read(template: str) -> None:
    with pytest.raises(UsageError, match="its fields can be"):
        renderer(PrintOptions(template))


@pytest.mark.parametrize(
    ("typed", "hint"), [("jsn", "did you mean json"), ("what", "text, json, table, raw")]
)
def test_an_unknown_format_gets_a_hint(typed: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        renderer(PrintOptions(typed))


@pytest.mark.parametrize("width", [30, 40, 60, 80, 99, 100, 200])
def test_a_table_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    long = "größer als 漢字 ".encode() * 40
    odd = record(long, long, timestamp=-1), record(b"", None, timestamp=10**18)
    lines = printed(PrintOptions("table"), record(long), *odd, on_terminal=True).splitlines()
    assert len(lines) == 4
    assert all(cell_len(line) <= width for line in lines)
    assert cell_len(lines[1]) >= width - 2, "all the room is used"
    assert "größer" in lines[1].split("  ")[-1] and "42" in lines[1]


def test_a_narrow_table_has_the_date_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    header, line = printed(PrintOptions("table"), on_terminal=True).splitlines()
    assert header.split() == ["TOPIC", "PART", "OFFSET", "TIME", "KEY", "VALUE"]
    assert line.split() == ["orders", "3", "42", "2026-01-31", "12:00:00", "k", "v"]


def test_a_table_has_one_header() -> None:
    lines = printed(PrintOptions("table"), record(), record(b"other")).splitlines()
    assert [line.split() for line in lines] == [
        ["TOPIC", "PARTITION", "OFFSET", "TIME", "KEY", "VALUE"],
        ["orders", "3", "42", "2026-01-31T12:00:00.250Z", "k", "v"],
        ["orders", "3", "42", "2026-01-31T12:00:00.250Z", "k", "other"],
    ]


@pytest.mark.parametrize(
    ("value_format", "raw", "expected"),
    [
        ("hex", b"\x01\xff", "01ff"),
        ("base64", b"\x01\xff", "Af8="),
        ("int", b"\x00\x00\x00\x07", "7"),
        ("long", b"\x00" * 7 + b"\x07", "7"),
        ("json", b'{"a":"\xc3\xa9"}', '{"a": "é"}'),
        ("boolean", b"\x01", "true"),
        ("uuid", b"12345678-1234-5678-1234-567812345678", '"12345678-1234-5678-1234-567812345678"'),
    ],
)
def test_values_are_read_as_asked(value_format: str, raw: bytes, expected: str) -> None:
    assert printed(PrintOptions(value_format=value_format), record(raw)) == expected + "\n"


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(
        DeserializationError, match=r"the value of orders-3 at offset 42 .* --from 43"
    ) as caught:
        printed(PrintOptions(value_format="int"), record(b"abc"))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 42)
    assert caught.value.raw == b"abc"


def test_unknown_value_formats_and_stray_schemas_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--value-format 'jsn' is unknown: did you mean json"):
        renderer(PrintOptions(value_format="jsn"))
    with pytest.raises(UsageError, match="--key-format 'zzz' is unknown: choose one of"):
        renderer(PrintOptions(key_format="zzz"))
    with pytest.raises(UsageError, match="--schema is for"):
        renderer(PrintOptions(schema=tmp_path / "x.avsc"))


def test_avro_with_a_schema_file(tmp_path: Path) -> None:
    schema = tmp_path / "text.avsc"
    schema.write_text('"string"')
    assert printed(PrintOptions(value_format="avro", schema=schema), record(b"\x04hi")) == "hi\n"


@pytest.mark.parametrize("timestamp", [-1, 0, 10**17, 2**63 - 1])
def test_any_timestamp_can_be_printed(timestamp: int) -> None:
    assert printed(PrintOptions(timestamps=True), record(timestamp=timestamp)).endswith("\tv\n")


@given(
    st.none() | st.binary(), st.none() | st.binary(), st.lists(st.tuples(st.text(), st.none() | st.binary()))
)
def test_json_can_be_produced_again(value: bytes | None, key: bytes | None, headers: list[Header]) -> None:
    line = renderer(PrintOptions("json"))(record(value, key, tuple(headers)))
    assert list(read_drafts(io.BytesIO(line), InputOptions(InputFormat.RECORDS))) == [
        Draft(value, key, tuple(headers), TIME_MS)
    ]
