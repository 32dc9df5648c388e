"""Parses a schema in Spark's DDL into exact Arrow types, and renders it.

Spark parses DDL only inside a running JVM or through a server. A load reports an invalid schema at once, so
the part of DDL that tables need is parsed here. A test compares it with Spark's own parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn

from millstream.errors import ConfigError
from millstream.suggestions import nearest

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<text>'[^']*'|"[^"]*")|(?P<sign>[<>(),:]))""",
    re.ASCII,
)
_DECIMALS: Final = ("DECIMAL", "DEC", "NUMERIC")
_END: Final = ""
_ELSEWHERE: Final = {
    **dict.fromkeys(("VARCHAR", "CHAR", "TEXT", "JSON", "JSONB", "UUID"), "STRING"),
    **dict.fromkeys(("BYTES", "BYTEA", "BLOB"), "BINARY"),
    **dict.fromkeys(("DATETIME", "TIMESTAMPTZ"), "TIMESTAMP"),
    "BOOL": "BOOLEAN",
}
"""Types of other systems, and what to write here."""


def _simple_types() -> dict[str, Any]:
    import pyarrow as pa

    instant = pa.timestamp("us", "UTC")
    return {
        "BOOLEAN": pa.bool_(),
        "TINYINT": pa.int8(),
        "BYTE": pa.int8(),
        "SMALLINT": pa.int16(),
        "SHORT": pa.int16(),
        "INT": pa.int32(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "LONG": pa.int64(),
        "FLOAT": pa.float32(),
        "REAL": pa.float32(),
        "DOUBLE": pa.float64(),
        "STRING": pa.string(),
        "BINARY": pa.binary(),
        "DATE": pa.date32(),
        "TIMESTAMP": instant,
        "TIMESTAMP_LTZ": instant,
        "TIMESTAMP_NTZ": pa.timestamp("us"),
    }


def parse(text: str) -> Any:
    """The Arrow schema of this DDL. Raises ConfigError that names the column and the problem."""
    return _SchemaParser(text).schema()


class _SchemaParser:
    """A recursive descent parser; errors say where it stopped."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._at = 0
        self._types = _simple_types()

    def schema(self) -> Any:
        import pyarrow as pa

        fields = self._fields(_END)
        seen: set[str] = set()
        for field in fields:
            if field.name.lower() in seen:
                raise ConfigError(
                    f"schema: the column {field.name} is there twice (capitals do not count)",
                    setting="schema",
                )
            seen.add(field.name.lower())
        return pa.schema(fields)

    def _scan(self) -> list[tuple[str, str]]:
        """The tokens, as pairs of kind and text."""
        found: list[tuple[str, str]] = []
        at = 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise ConfigError(
                    f"schema: {self._text[at:].strip()[:20]!r} cannot be read; a name with other characters "
                    "than letters, digits and _ is written in `backquotes`",
                    setting="schema",
                )
            found.append((match.lastgroup or "", match[0].strip()))
            at = match.end()
        return [*found, (_END, _END)]

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, *words: str) -> bool:
        """Consume these words if they come next."""
        ahead = [text.upper() for _, text in self._tokens[self._at : self._at + len(words)]]
        if ahead != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, sign: str, where: str) -> None:
        if not self._take(sign):
            self._fail(f"{where} needs {sign!r}")

    def _fail(self, what: str) -> NoReturn:
        got = self._peek()
        found = f"there is {got!r}" if got else "it ends"
        raise ConfigError(f"schema: {what}, but {found}", setting="schema")

    def _fields(self, end: str) -> list[Any]:
        fields = [self._field()]
        while self._take(","):
            fields.append(self._field())
        if self._peek() != end:
            self._fail("a ',' must come between columns" if end == _END else f"a struct needs {end!r}")
        return fields

    def _field(self) -> Any:
        import pyarrow as pa

        kind, name = self._next()
        if kind not in ("word", "quoted"):
            self._at = max(0, self._at - 1) if kind else self._at
            self._fail("a column needs a name")
        if kind == "quoted":
            name = name[1:-1].replace("``", "`")
        self._take(":")
        found = self._type(name)
        nullable = not self._take("NOT", "NULL")
        if self._take("COMMENT"):
            self._next()
        return pa.field(name, found, nullable=nullable)

    def _type(self, column: str) -> Any:
        word = self._next()[1].upper()
        if word == _END:
            raise ConfigError(f"schema: the column {column} has no type", setting="schema")
        nested: dict[str, Callable[[str], Any]] = {
            "ARRAY": self._array,
            "MAP": self._map,
            "STRUCT": self._struct,
        }
        if word in nested:
            return nested[word](column)
        if word in _DECIMALS:
            return self._decimal(column)
        if word not in self._types:
            known = {name: name for name in (*self._types, "DECIMAL", *nested)} | _ELSEWHERE
            near = nearest(word, known, cutoff=0.8)
            hint = (
                f"did you mean {known[near[0]]}?"
                if near
                else f"choose one of {', '.join(dict.fromkeys(known.values()))}"
            )
            raise ConfigError(
                f"schema: the column {column} is of type {word}, which a load cannot make: {hint}",
                setting="schema",
            )
        return self._types[word]

    def _array(self, column: str) -> Any:
        import pyarrow as pa

        self._expect("<", f"the ARRAY of {column}")
        element = self._type(column)
        self._expect(">", f"the ARRAY of {column}")
        return pa.list_(pa.field("element", element))

    def _map(self, column: str) -> Any:
        import pyarrow as pa

        self._expect("<", f"the MAP of {column}")
        key = self._type(column)
        self._expect(",", f"the MAP of {column}")
        value = self._type(column)
        self._expect(">", f"the MAP of {column}")
        return pa.map_(key, value)

    def _struct(self, column: str) -> Any:
        import pyarrow as pa

        self._expect("<", f"the STRUCT of {column}")
        fields = self._fields(">")
        self._expect(">", f"the STRUCT of {column}")
        return pa.struct(fields)

    def _decimal(self, column: str) -> Any:
        import pyarrow as pa

        precision, scale = 10, 0
        if self._take("("):
            precision = self._number(column)
            scale = self._number(column) if self._take(",") else 0
            self._expect(")", f"the DECIMAL of {column}")
        if not 0 < precision <= 38 or scale > precision:
            raise ConfigError(
                f"schema: the column {column} is DECIMAL({precision},{scale}): the precision is at "
                "most 38, the scale at most the precision",
                setting="schema",
            )
        return pa.decimal128(precision, scale)

    def _number(self, column: str) -> int:
        _, text = self._next()
        if not text.isdigit():
            raise ConfigError(
                f"schema: the DECIMAL of {column} needs numbers, not {text!r}", setting="schema"
            )
        return int(text)


def type_name(kind: Any) -> str:
    """An Arrow type in DDL: ``ARRAY<LONG>``."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(_rendered(field, ': ') for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    names = {found: name for name, found in _simple_types().items() if name not in _SYNONYMS}
    return names[kind]


_SYNONYMS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "REAL", "TIMESTAMP_LTZ")


def render(schema: Any) -> str:
    """The DDL of an Arrow schema: ``parse`` of it is the same schema."""
    return ", ".join(_rendered(field, " ") for field in schema)


def _rendered(field: Any, between: str) -> str:
    name = "`" + field.name.replace("`", "``") + "`"
    return f"{name}{between}{type_name(field.type)}{'' if field.nullable else ' NOT NULL'}"
