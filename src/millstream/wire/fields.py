"""One field of a message: its type on the wire, and the versions of the API that carry it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

FIXED: Final = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
"""Types of fixed size: their ``struct`` format and their size in bytes."""

LONGEST_STRING: Final = 0x7FFF
"""In bytes. Kafka refuses longer ones in every version, also where the length's encoding would allow them."""

NEVER: Final = 0x7FFF
"""The first flexible version (KIP-482) of an API that has none."""

Versions = tuple[int, int]
"""An inclusive range of versions."""
_ALL: Final[Versions] = (0, NEVER)

MISSING: Final[Any] = object()
"""The default of a field that every instance must be given."""


def parse_versions(text: str) -> Versions:
    """Read ``"3+"``, ``"2-4"`` or ``"7"`` as an inclusive range."""
    low, dash, high = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return int(low), _ALL[1]
    return int(low), int(high) if dash else int(low)


class HasFields:
    """The base of every struct: the declarations of its fields, in their order on the wire."""

    __slots__ = ()

    __fields__: ClassVar[tuple[Field, ...]]


class Field:
    """The declaration of one field. ``zero`` is the default of a field that is declared without one."""

    def __init__(
        self,
        kind: str,
        versions: str | None,
        default: Any,
        zero: Any,
        *,
        nullable: str | None = None,
        tag: int | None = None,
        ignorable: bool = True,
        element: Field | None = None,
        struct_type: type[Any] | None = None,
    ) -> None:
        assert tag is None or 0 <= tag < 128, "the compiler writes tags as one byte"
        self.kind = kind
        self.versions = parse_versions(versions) if versions else _ALL
        self.nullable = parse_versions(nullable) if nullable else None
        self.tag = tag
        self.default = zero if default is MISSING else default
        self.required = default is MISSING
        self.ignorable = ignorable
        self.element = element
        self.struct_type = struct_type
        self.name = ""

    def present(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def null_allowed(self, version: int) -> bool:
        return self.nullable is not None and self.nullable[0] <= version <= self.nullable[1]
