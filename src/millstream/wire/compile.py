"""Turns the declarations of ``schema`` into Python source, one function per message and version, and runs it.

What the generated code promises:

- runs of fixed-size fields are packed and unpacked by one ``struct`` call, and nested structs are read and
  written in place: one message is one function;
- every length is checked against the end of the frame before it is used, and every count against the bytes
  that so many elements need at least and against the elements that one message may have: a hostile frame
  costs little more than its size;
- record payloads are views of the frame when read, and kept apart when written: never copied.

``decoders`` and ``encoders`` write the source; here is what they share. Functions are generated on first use
and kept, so importing a message is cheap; to see one, print ``decoders.write(FetchRequest, 12).text``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from millstream.wire.schema import Field, Message, Struct

Decoder = Callable[[memoryview, int, int, int], tuple[Any, int]]
"""``(view, position, end, elements left) -> (message, position)``."""

Encoder = Callable[[Any, bytearray, list[tuple[int, Any]]], None]
"""``(message, buffer, payloads)`` appends the message to both; see ``Message.encode_into``."""

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


def decoder(message: type[Message], version: int) -> Decoder:
    """Compile the function that reads this version; UnsupportedVersionError where there is no such."""
    from millstream.wire import decoders  # here, because a process that decodes nothing need not load it

    _check_version(message, version)
    function: Decoder = decoders.write(message, version).compile()
    message.decoders[version] = function
    return function


def encoder(message: type[Message], version: int) -> Encoder:
    """Compile the function that writes this version; UnsupportedVersionError where there is no such."""
    from millstream.wire import encoders

    _check_version(message, version)
    function: Encoder = encoders.write(message, version).compile()
    message.encoders[version] = function
    return function


def _check_version(message: type[Message], version: int) -> None:
    lowest, highest = message.versions
    if not lowest <= version <= highest:
        raise UnsupportedVersionError(
            f"{message.__name__} has versions {lowest} to {highest}, but not {version}"
        )


def constructor(struct_type: type[Struct]) -> Callable[..., None]:
    """``__init__`` with one keyword per field. A list default is made anew for each instance."""
    source = Source(f"{struct_type.__name__}.__init__")
    parameters = []
    for field in struct_type.__fields__:
        default, value = field.default, field.name
        if isinstance(default, list):
            default, value = ..., f"[] if {field.name} is ... else {field.name}"
        parameters.append(field.name if field.required else f"{field.name}={source.constant(default)}")
        source.line(f"self.{field.name} = {value}")
    source.head = f"def __init__({', '.join(['self', *(['*', *parameters] if parameters else [])])}):"
    function: Callable[..., None] = source.compile()
    function.__qualname__ = source.title
    return function


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes a value of this field can take: what a claimed count is checked against."""
    if field.kind in FIXED:
        return FIXED[field.kind][1]
    if field.kind == "struct" and not field.null_allowed(version):
        assert field.struct_type is not None, "a struct field has a type"
        inner = [f for f in field.struct_type.__fields__ if f.present(version) and f.tag is None]
        return max(1, sum(minimum_size(f, version, flexible) for f in inner) + flexible)
    if flexible or field.kind == "struct":
        return 1  # a compact length, or the mark of a null struct
    return 2 if field.kind == "string" else 4


class Source:
    """The text of one function under construction, with the constants that it refers to."""

    def __init__(self, title: str, **constants: Any) -> None:
        self.title = title
        self.head = ""
        self.constants: dict[str, Any] = constants
        self._lines: list[str] = []
        self._indent = "    "

    @property
    def text(self) -> str:
        return "\n".join((self.head, *(self._lines or ["    pass"]))) + "\n"

    def line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    def block(self, head: str) -> _Block:
        """``with source.block("if n:"):`` indents the lines written inside."""
        self.line(head)
        return _Block(self)

    def indent(self, levels: int) -> None:
        self._indent = " " * (len(self._indent) + 4 * levels)

    def constant(self, value: Any) -> str:
        """An expression for the value: a literal where there is one, a global name otherwise."""
        if value is ...:
            return "..."
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def named(self, struct_type: type[Struct]) -> str:
        """The name under which the function knows a class."""
        name = struct_type.__name__
        assert self.constants.setdefault(name, struct_type) is struct_type, f"two structs are named {name}"
        return name

    def packer(self, layout: str, method: str) -> str:
        """The name of ``pack`` or ``unpack_from`` for a layout."""
        name = f"{method}_{layout.replace('?', 'o')}"
        if name not in self.constants:
            self.constants[name] = getattr(struct.Struct(">" + layout), method)
        return name

    def packers(self, layout: str, method: str) -> str:
        """The name of a tuple of ``pack`` or ``unpack_from`` for 0 to 15 values of one layout."""
        name = f"{method}_few_{layout.replace('?', 'o')}"
        self.constants[name] = _packers(layout, method)
        return name

    def compile(self) -> Any:
        exec(compile(self.text, f"<millstream {self.title}>", "exec"), self.constants)
        return self.constants[self.head[4 : self.head.index("(")]]


@functools.cache
def _packers(layout: str, method: str) -> tuple[Any, ...]:
    return tuple(getattr(struct.Struct(f">{count}{layout}"), method) for count in range(16))


class _Block:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.indent(1)

    def __exit__(self, *_: object) -> None:
        self._source.indent(-1)
