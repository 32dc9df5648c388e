"""Parses JSON values one by one: this defines the format. ``json`` does the same in blocks.

A value is one JSON object in UTF-8. Fields that the schema does not name are ignored; missing ones are null.
Types are strict: a number in quotes is not a number, 1.0 is not a LONG, nothing is rounded or truncated.
Dates, timestamps, decimals (as an alternative) and binary are texts: see ``texts``.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from millstream.errors import ConfigError
from millstream.spark.load.pipeline import ddl
from millstream.spark.load.pipeline.formats import texts
from millstream.spark.load.pipeline.formats.parsed import (
    BadColumnError,
    ConvertField,
    RejectError,
    converted,
    decoded,
    not_null,
)

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST: Final = 256
"""The deepest nesting of objects and arrays."""
_SHOWN: Final = 40
_LONGEST_INTEGER: Final = 25
"""Longer integers are rejected without parsing them: a LONG has at most 19 digits."""


class Whole(str):
    """A number without fraction and exponent, as text."""

    __slots__ = ()


class Real(str):
    """Any other number, as text."""

    __slots__ = ()


class Twice:
    """The value of a field that an object has more than once."""


class JsonRows:
    """Parses one value at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns = [(field.name, _nullable(field)) for field in schema]
        self._decoder = json.JSONDecoder(
            parse_float=Real, parse_int=Whole, parse_constant=_refuse_constant, object_pairs_hook=_object
        )

    def convert(self, raw: bytes | None) -> list[Any]:
        """The values of the columns; raises RejectError with all problems."""
        return converted(self._load(raw), self._columns)

    def _load(self, raw: bytes | None) -> dict[str, Any]:
        text = decoded(raw)
        if _depth_may_exceed(text) and _depth(text) > DEEPEST:
            raise RejectError(f"not JSON that can be read: nested more than {DEEPEST} deep")
        try:
            found = self._decoder.decode(text)
        except json.JSONDecodeError as error:
            raise RejectError(f"not JSON: {_problem(error)}") from error
        if not isinstance(found, dict):
            raise RejectError(f"not a JSON object: {described(found)}")
        return found


def _problem(error: json.JSONDecodeError) -> str:
    said = error.msg.removesuffix(" at")
    return f"{said[:1].lower()}{said[1:]} at position {error.pos}"


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is no JSON", name, 0)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found[name] = Twice()
            seen.add(name)
    return found


def _depth_may_exceed(text: str) -> bool:
    return len(text) > DEEPEST and text.count("{") + text.count("[") > DEEPEST


def _depth(text: str) -> int:
    """How deep brackets are nested outside of strings, in one pass."""
    depth = deepest = 0
    in_string = escaped = False
    for sign in text:
        if in_string:
            in_string = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            in_string = True
        elif sign in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "}]":
            depth -= 1
    return deepest


def described(value: Any) -> str:
    """What a JSON value is, for a reason: ``string "abc"``."""
    if isinstance(value, Whole | Real):
        return f"number {_cut(value)}"
    if isinstance(value, str):
        return f"string {json.dumps(_cut(value), ensure_ascii=True)}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def _cut(text: str) -> str:
    return str(text) if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


# ---- the types


def _nullable(field: Any) -> ConvertField:
    convert = converter(field.type, field.name)

    def read(value: Any, path: str) -> Any:
        if isinstance(value, Twice):
            raise BadColumnError(path, "given twice")
        return convert(value, path)

    return not_null(field, read)


def converter(kind: Any, name: str) -> ConvertField:
    """The function that converts JSON to this Arrow type. Raises ConfigError if there is none."""
    import pyarrow as pa

    makers: list[tuple[Callable[[Any], bool], Callable[[], ConvertField]]] = [
        (pa.types.is_map, lambda: _map(kind, name)),
        (pa.types.is_list, lambda: _array(kind, name)),
        (pa.types.is_struct, lambda: _struct(kind)),
        (pa.types.is_boolean, lambda: _boolean),
        (pa.types.is_integer, lambda: _integer(kind)),
        (pa.types.is_floating, lambda: _float(kind)),
        (pa.types.is_string, lambda: _string),
    ]
    return next((make() for matches, make in makers if matches(kind)), None) or _text(kind)


def _wrong(kind: str, value: Any, path: str) -> NoReturn:
    raise BadColumnError(path, f"expected {kind}, got {described(value)}")


def _unfit(kind: str, value: str, path: str) -> NoReturn:
    raise BadColumnError(path, f"{_cut(value)} does not fit {kind}")


def _boolean(value: Any, path: str) -> bool:
    return value if isinstance(value, bool) else _wrong("BOOLEAN", value, path)


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str) or isinstance(value, Whole | Real):
        _wrong("STRING", value, path)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BadColumnError(path, "half of a surrogate pair is no character") from error
    return value


def _integer(kind: Any) -> ConvertField:
    name = ddl.type_name(kind)
    limit = 1 << (kind.bit_width - 1)

    def read(value: Any, path: str) -> int:
        if not isinstance(value, Whole):
            _wrong(name, value, path)
        if len(value) > _LONGEST_INTEGER:
            _unfit(name, value, path)
        number = int(value)
        return number if -limit <= number < limit else _unfit(name, value, path)

    return read


def _float(kind: Any) -> ConvertField:
    name = ddl.type_name(kind)
    single = kind.bit_width == 32

    def read(value: Any, path: str) -> float:
        if not isinstance(value, Whole | Real):
            _wrong(name, value, path)
        number = float(value)
        if single and math.isfinite(number):
            number = rounded(number)
        return number if math.isfinite(number) else _unfit(name, value, path)

    return read


def rounded(number: float) -> float:
    """The nearest number of 32 bits; infinite where there is none."""
    try:
        nearest: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return math.inf
    return nearest


def _text(kind: Any) -> ConvertField:
    """Types that are written as text; a decimal may also be a number."""
    import pyarrow as pa

    name = ddl.type_name(kind)
    from_text = texts.reader(kind)
    assert from_text is not None
    numbers = pa.types.is_decimal(kind)

    def read(value: Any, path: str) -> Any:
        if not isinstance(value, str) or (isinstance(value, Whole | Real) and not numbers):
            _wrong(name, value, path)
        try:
            return from_text(value)
        except ValueError as error:
            if numbers and str(error) == "it does not fit":
                _unfit(name, value, path)
            _wrong(name, value, path)

    return read


def _array(kind: Any, name: str) -> ConvertField:
    element = _nullable(kind.value_field.with_name(name))

    def read(value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            _wrong("ARRAY", value, path)
        return [element(one, f"{path}[{place}]") for place, one in enumerate(value)]

    return read


def _struct(kind: Any) -> ConvertField:
    fields = [(field.name, _nullable(field)) for field in kind]

    def read(value: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            _wrong("STRUCT", value, path)
        return {name: convert(value.get(name), f"{path}.{name}") for name, convert in fields}

    return read


def _map(kind: Any, name: str) -> ConvertField:
    import pyarrow as pa

    if not pa.types.is_string(kind.key_type):
        raise ConfigError(
            f"schema: the MAP of {name} must have keys of type STRING, as JSON has no others",
            setting="schema",
        )
    item = _nullable(pa.field(name, kind.item_type))

    def read(value: Any, path: str) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            _wrong("MAP", value, path)
        return [(_string(key, path), item(one, f"{path}.{key}")) for key, one in value.items()]

    return read
