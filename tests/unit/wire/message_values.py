"""Values for messages: strategies made from our declarations, and what one version carries of them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any, TypeVar

from hypothesis import strategies as st

from millstream.wire import apis, consumer_protocol, messages
from millstream.wire.fields import Field
from millstream.wire.schema import Data, Message, Request, Response, Struct

S = TypeVar("S", bound=Struct)

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.just("x" * 200)
_BYTES = st.binary(max_size=6) | st.just(b"x" * 200)


def all_messages() -> list[type[Message]]:
    """Every request, response and data message that millstream declares."""
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"{messages.__name__}.{module.name}")
    declared = [*Request.__subclasses__(), *Response.__subclasses__(), *Data.__subclasses__()]
    places = (messages.__name__, consumer_protocol.__name__)
    return [message for message in declared if message.__module__.startswith(places)]


def api_messages() -> list[type[Request] | type[Response]]:
    """The messages of ``APIS``, requests and responses in turn."""
    return [half for api in apis.all_apis().values() for half in (api.request_type, api.response_type)]


def versions_of(message: type[Message]) -> range:
    return range(message.versions[0], message.versions[1] + 1)


def filled(struct_type: type[S], version: int) -> S:
    """An instance in which every field that the version carries holds something other than its default."""
    values = {field.name: _filled_value(field, version) for field in struct_type.__fields__}
    return carried(struct_type(**values), version)


def _filled_value(field: Field, version: int) -> Any:
    if field.element is not None:
        return [_filled_value(field.element, version)]
    if field.struct_type is not None:
        return filled(field.struct_type, version)
    if field.kind in _INTEGERS:
        return 5
    return {
        "bool": not field.default,
        "uint16": 5,
        "float64": 0.5,
        "uuid": b"0123456789abcdef",
        "string": "text",
    }.get(field.kind, b"data")


@functools.cache
def instances(struct_type: type[S]) -> st.SearchStrategy[S]:
    """Instances with every field set, also those that no single version carries together."""
    return st.builds(struct_type, **{field.name: _values(field) for field in struct_type.__fields__})


def _values(field: Field) -> st.SearchStrategy[Any]:
    values = _present_values(field)
    if field.nullable is not None or (field.kind == "struct" and field.tag is not None):
        values = st.none() | values
    # Tagged fields with their default are a case of their own: they are not written.
    return (
        values if field.required or field.default is None else values | st.builds(_default_of, st.just(field))
    )


def _default_of(field: Field) -> Any:
    return [] if isinstance(field.default, list) else field.default


def _present_values(field: Field) -> st.SearchStrategy[Any]:
    if field.element is not None:
        return st.lists(_values(field.element), max_size=2)
    if field.struct_type is not None:
        struct_type: type[Struct] = field.struct_type
        return instances(struct_type)
    if field.name == "error_code":
        return st.sampled_from([0, 1, 35, 76, 100, -1])
    if field.kind in _INTEGERS:
        return integers(_INTEGERS[field.kind], field.name)
    return _SIMPLE[field.kind]


_SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint16": st.integers(0, 0xFFFF),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16) | st.just(bytes(16)),
    "string": _TEXT,
    "bytes": _BYTES,
    "records": _BYTES,
}


def integers(bits: int, name: str) -> st.SearchStrategy[int]:
    """Integers of so many bits. The oracle knows times only to the second, and counts them from 1970."""
    if bits == 64 and ("timestamp" in name or name.endswith("_ms")):
        return st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000) | st.just(-1)
    limit = 1 << (bits - 1)
    return st.integers(-limit, limit - 1) | st.sampled_from([-limit, -1, 0, 1, limit - 1])


def carried(item: S, version: int) -> S:
    """What a version carries of an instance: the rest has its default, and null is only where it may be."""
    values: dict[str, Any] = {}
    for field in item.__fields__:
        value = getattr(item, field.name)
        if not field.present(version):
            value = _default_of(field)
        elif value is None and not field.null_allowed(version):
            value = None if field.kind == "struct" else _zero(field)
        else:
            value = _carried_value(field, value, version)
        values[field.name] = value
    return type(item)(**values)


def _carried_value(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [carried(each, version) if isinstance(each, Struct) else each for each in value]
    if isinstance(value, Struct):
        value = carried(value, version)
        return None if field.tag is not None and value == type(value)() else value
    return value


def _zero(field: Field) -> Any:
    return {"array": [], "string": "", "bytes": b"", "records": b""}[field.kind]
