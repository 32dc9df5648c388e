"""Why a message cannot be encoded: finds the field whose value its type on the wire cannot hold.

The generated encoders do not check what Python checks anyway. When one fails, this walks the message once
more, slowly, to say which value is at fault.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.errors import MisuseError
from millstream.wire.compile import FIXED, LONGEST_STRING

if TYPE_CHECKING:
    from millstream.wire.schema import Field, Message, Struct


class EncodeError(MisuseError, ValueError):
    """A value does not fit the field of the message that it was put into."""


def explain(message: Message, version: int, error: Exception) -> EncodeError:
    """The error to raise for a message whose encoder failed with ``error``."""
    name = type(message).__name__
    for path, fault in _struct_faults(message, version, ""):
        return EncodeError(f"{name} version {version}: {path} {fault}")
    return EncodeError(f"{name} version {version} cannot be encoded: {error!r}")


def _struct_faults(item: Struct, version: int, prefix: str) -> Iterator[tuple[str, str]]:
    for field in item.__fields__:
        if field.present(version):
            value = getattr(item, field.name, ...)
            yield from _faults(field, value, version, prefix + field.name)


def _faults(field: Field, value: Any, version: int, path: str) -> Iterator[tuple[str, str]]:
    if value is None and (field.null_allowed(version) or (field.kind == "struct" and field.tag is not None)):
        return
    if value is ... or value is None:
        yield path, "is missing, and has no null in this version"
    elif field.kind == "array":
        yield from _array_faults(field, value, version, path)
    elif field.struct_type is not None:
        if isinstance(value, field.struct_type):
            yield from _struct_faults(value, version, path + ".")
        else:
            yield path, f"is {_short(value)}, which is no {field.struct_type.__name__}"
    else:
        fault = _FAULT_FINDERS.get(field.kind, _fixed_fault)(field, value)
        if fault:
            yield path, fault


def _array_faults(field: Field, value: Any, version: int, path: str) -> Iterator[tuple[str, str]]:
    assert field.element is not None, "an array has an element type"
    if not isinstance(value, list | tuple):
        yield path, f"is {_short(value)}, which is no list"
        return
    for index, item in enumerate(value):
        yield from _faults(field.element, item, version, f"{path}[{index}]")


def _string_fault(_field: Field, value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {_short(value)}, which is no string"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return f"is {_short(value)}, which is no text that UTF-8 can hold"
    return None if size <= LONGEST_STRING else f"has {size} bytes: at most {LONGEST_STRING} fit"


def _buffer_fault(_field: Field, value: Any) -> str | None:
    try:
        memoryview(value)
    except TypeError:
        return f"is {_short(value)}, which holds no bytes"
    return None


def _records_fault(_field: Field, value: Any) -> str | None:
    return None if hasattr(value, "__len__") else f"is {_short(value)}, which holds no records"


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
