"""Infers the columns of JSON values from some of them. Pure.

Whole numbers are LONG, others DOUBLE, texts STRING: never a date, as the next text may be none. A field that
is always null is STRING. Values that are no JSON objects are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_LONG: Final = 1 << 63
_DEEPEST: Final = 50


def infer(values: Iterable[bytes | None]) -> pa.Schema | None:
    """The columns of these values; None if no value is an object. Raises ConfigError for contradictions."""
    import pyarrow as pa

    known: dict[str, Any] = {}
    is_found = False
    for raw in values:
        try:
            found = None if raw is None else json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            is_found = True
            for name, value in found.items():
                known[name] = _merged(known.get(name), _kind(value, name, 0), name)
    return pa.schema([(name, _settled(kind)) for name, kind in known.items()]) if is_found else None


def _kind(value: Any, path: str, depth: int) -> Any:
    """The type of one value; None for a null. Lists are (element,), objects are dicts of their fields."""
    import pyarrow as pa

    if depth > _DEEPEST:
        raise ConfigError(f"{path} is nested too deeply to infer its type: give a schema", setting="schema")
    if isinstance(value, dict):
        return {name: _kind(one, f"{path}.{name}", depth + 1) for name, one in value.items()}
    if isinstance(value, list):
        element = None
        for one in value:
            element = _merged(element, _kind(one, f"{path}[]", depth + 1), f"{path}[]")
        return (element,)
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64() if -_LONG <= value < _LONG else pa.float64()
    return pa.float64() if isinstance(value, float) else pa.string()


def _merged(one: Any, other: Any, path: str) -> Any:
    import pyarrow as pa

    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys((*one, *other))
        return {name: _merged(one.get(name), other.get(name), f"{path}.{name}") for name in names}
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (_merged(one[0], other[0], f"{path}[]"),)
    if {one, other} == {pa.int64(), pa.float64()} if _is_simple(one, other) else False:
        return pa.float64()
    raise ConfigError(
        f"{path} is {_word(one)} in some values and {_word(other)} in others: give a schema with its type, "
        "or without it",
        setting="schema",
    )


def _is_simple(*kinds: Any) -> bool:
    return not any(isinstance(kind, dict | tuple) for kind in kinds)


def _word(kind: Any) -> str:
    if isinstance(kind, dict):
        return "an object"
    return "an array" if isinstance(kind, tuple) else f"a {kind}"


def _settled(kind: Any) -> Any:
    """The Arrow type, also where some of it is unknown."""
    import pyarrow as pa

    if kind is None:
        return pa.string()
    if isinstance(kind, tuple):
        return pa.list_(pa.field("element", _settled(kind[0])))
    if isinstance(kind, dict):
        if not kind:
            return pa.map_(pa.string(), pa.string())
        return pa.struct([(name, _settled(one)) for name, one in kind.items()])
    return kind
