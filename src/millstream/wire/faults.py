"""Explains why a message cannot be encoded: finds the field whose value its wire type cannot hold.

The generated encoders do not check what Python checks anyway. When one fails, this walks the message again,
slowly, to say which value is at fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from millstream.errors import MisuseError
from millstream.wire.fields import FIXED, LONGEST_STRING, Field, HasFields


class EncodeError(MisuseError, ValueError):
    """A value does not fit its field in the message."""


def explain(message: HasFields, version: int, error: Exception) -> EncodeError:
    """Return the error to raise for a message whose encoder failed with ``error``."""
    name = type(message).__name__
    for path, fault in _struct_faults(message, version, ""):
        return EncodeError(f"{name} version {version}: {path} {fault}")
    return EncodeError(f"{name} version {version} cannot be encoded: {error!r}")


def _struct_faults(item: HasFields, version: int, prefix: str) -> Iterator[tuple[str, str]]:
    for field in item.__fields__:
        if field.present(version):
            value = getattr(item, field.name, ...)
            yield from _faults(field, value, version, prefix + field.name)


def _faults(field: Field, value: Any, version: int, path: str) -> Iterator[tuple[str, str]]:
    if value is None and (field.null_allowed(version) or (field.kind == "struct" and field.tag is not None)):
        return
    if value is ... or value is None:
        yield path, "is missing, and cannot be null in this version"
    elif field.kind == "array":
        yield from _array_faults(field, value, version, path)
    elif field.struct_type is not None:
        if isinstance(value, field.struct_type):
            yield from _struct_faults(value, version, path + ".")
        else:
            yield path, f"is {_short(value)}, not {field.struct_type.__name__}"
    else:
        fault = _FAULT_FINDERS.get(field.kind, _fixed_fault)(field, value)
        if fault:
            yield path, fault


def _array_faults(field: Field, value: Any, version: int, path: str) -> Iterator[tuple[str, str]]:
    assert field.element is not None, "an array has an element type"
    if not isinstance(value, list | tuple):
        yield path, f"is {_short(value)}, not a list"
        return
    for index, item in enumerate(value):
        yield from _faults(field.element, item, version, f"{path}[{index}]")


def _string_fault(_field: Field, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {_short(value)}, not a string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"is {_short(value)}, which UTF-8 cannot encode"
    return None if size <= LONGEST_STRING else f"has {size} bytes: at most {LONGEST_STRING} fit"


def _buffer_fault(_field: Field, value: Any) -> str | None:
    try:
        memoryview(value)
    except TypeError:
        return f"is {_short(value)}, not bytes"
    return None


def _records_fault(_field: Field, value: Any) -> str | None:
    return None if hasattr(value, "__len__") else f"is {_short(value)}, not records"


def _uuid_fault(_field: Field, value: Any) -> str | None:
    return None if isinstance(value, bytes) and len(value) == 16 else f"is {_short(value)}, not 16 bytes"


def _fixed_fault(field: Field, value: Any) -> str | None:
    try:
        struct.pack(">" + FIXED[field.kind][0], value)
    except (struct.error, OverflowError, TypeError):
        return f"is {_short(value)}, which does not fit {field.kind}"
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_FAULT_FINDERS = {
    "string": _string_fault,
    "bytes": _buffer_fault,
    "records": _records_fault,
    "uuid": _uuid_fault,
}
