"""The text of one generated function, built line by line and compiled, with the constants it refers to."""

from __future__ import annotations

import functools
import struct
from typing import Any


class Source:
    """A function under construction: ``head`` is its ``def`` line, ``title`` its name in tracebacks."""

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

    def block(self, head: str) -> _IndentedBlock:
        """``with source.block("if n:"):`` indents the lines written inside."""
        self.line(head)
        return _IndentedBlock(self)

    def indent(self, levels: int) -> None:
        self._indent = " " * (len(self._indent) + 4 * levels)

    def constant(self, value: Any) -> str:
        """Return an expression for the value: a literal if possible, otherwise the name of a global."""
        if value is ...:
            return "..."
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return repr(value)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def named(self, struct_type: type) -> str:
        """The name under which the function refers to a class."""
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
        """Return the function."""
        exec(compile(self.text, f"<millstream {self.title}>", "exec"), self.constants)
        return self.constants[self.head[4 : self.head.index("(")]]


@functools.cache
def _packers(layout: str, method: str) -> tuple[Any, ...]:
    return tuple(getattr(struct.Struct(f">{count}{layout}"), method) for count in range(16))


class _IndentedBlock:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.indent(1)

    def __exit__(self, *_: object) -> None:
        self._source.indent(-1)
