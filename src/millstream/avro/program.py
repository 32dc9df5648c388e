"""Compiles a writer's schema into instructions that fill the columns: fields are matched by name.

Numbers are widened, fields that no column has are skipped, columns that the writer lacks become their
default or null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from millstream.avro.instructions import BYTE, DECIMAL, LIST, LONG, NOT_NULL, NOTHING, OP, VARIABLE, WORD
from millstream.avro.kernel import DEEPEST_LOOP
from millstream.avro.schemas import DEEPEST, SchemaError, Types, parsed
from millstream.avro.targets import Target, logical_types

_SKIPPED: Final = {
    "null": ("SKIP", 0),
    "boolean": ("SKIP", 1),
    "int": ("SKIP_LONG", 0),
    "long": ("SKIP_LONG", 0),
    "enum": ("SKIP_LONG", 0),
    "float": ("SKIP", 4),
    "double": ("SKIP", 8),
    "bytes": ("SKIP_SIZED", 0),
    "string": ("SKIP_SIZED", 0),
}

_DAY: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""What a time of day is less than."""


class Program:
    """The columns as numbered nodes, and the instructions of all schemas that were compiled for them."""

    def __init__(self, columns: Sequence[Target]) -> None:
        self.columns = columns
        self.nodes: list[Target] = []
        self.kinds: list[int] = []
        self.numbers: dict[int, int] = {}
        self.code: list[tuple[int, int, int, int]] = []
        self.table: list[int] = []
        self.constants = bytearray()
        for each in columns:
            self._number(each)

    def _number(self, target: Target) -> None:
        self.numbers[id(target)] = len(self.nodes)
        self.nodes.append(target)
        self.kinds.append(_kind(target.type))
        for part in target.parts:
            self._number(part)

    def compile(self, schema: str | dict[str, Any] | list[Any]) -> int:
        """Return where the instructions for records of this schema begin.

        Raises ValueError if it is not a schema, or if its records cannot become these columns.
        """
        found = parsed(schema)
        types = Types(found)
        record = types.of(found)
        if isinstance(record, list) or record["type"] != "record":
            raise SchemaError("it is not a record, whose fields are the columns")
        marks = len(self.code), len(self.table), len(self.constants)
        try:
            compiler = _Compiler(self, types)
            compiler.fields(record, self.columns, 0)
            compiler.emit("END")
        except Exception:
            for part, mark in zip((self.code, self.table, self.constants), marks, strict=True):
                del part[mark:]  # type: ignore[attr-defined]
            raise
        return marks[0]


class _Compiler:
    """Emits the instructions of one schema."""

    def __init__(self, program: Program, types: Types) -> None:
        self._program = program
        self._types = types
        self._loops = 0

    def emit(self, name: str, node: int = -1, first: int = 0, second: int = 0) -> int:
        self._program.code.append((OP[name], node, first, second))
        return len(self._program.code) - 1

    def _patch(self, place: int) -> None:
        """Let a jump, or a loop's exit, lead to the next instruction."""
        op, node, _, second = self._program.code[place]
        self._program.code[place] = (op, node, len(self._program.code), second)

    def _node(self, target: Target) -> int:
        return self._program.numbers[id(target)]

    # -- records

    def fields(self, record: Any, targets: Sequence[Target], depth: int) -> None:
        """Read a record's fields in the writer's order, then fill the columns that it lacks."""
        names = [field["name"] for field in record["fields"]]
        wanted: dict[str, Target] = {}
        for target in targets:
            found = next((name for name in (target.name, *target.aliases) if name in names), None)
            if found is not None and found not in wanted:
                wanted[found] = target
        for field in record["fields"]:
            if field["name"] in wanted:
                self.read(field["type"], wanted[field["name"]], depth + 1)
            else:
                self.skip(field["type"], depth + 1)
        present = {id(target) for target in wanted.values()}
        for target in targets:
            if id(target) not in present:
                self._missing(target, depth)

    def _missing(self, target: Target, depth: int) -> None:
        if target.default is None or target.types is None:
            if not target.nullable:
                raise SchemaError(f"it has no field {target.path}, and the column is NOT NULL")
            self._null(target)
            return
        constants = self._program.constants
        begin = len(constants)
        constants += target.default
        self.emit("CONSTANT", -1, begin, len(constants))
        within = _Compiler(self._program, target.types)
        within._loops = self._loops
        within.read(target.avro, target, depth + 1)
        self.emit("RESUME")

    def _null(self, target: Target) -> None:
        child = self._node(target.parts[0]) if target.parts else 0
        self.emit("NULL", self._node(target), 0, child)
        if _kind(target.type) == NOTHING:
            for part in target.parts:
                self._null(part)

    # -- values

    def read(self, schema: Any, target: Target, depth: int) -> None:
        """Read a value into a column."""
        found = self._of(schema, depth, target.path)
        if isinstance(found, list):
            return self._union(found, target, depth)
        kind = found["type"]
        shape = _kind(target.type)
        if kind == "null":
            return self._null_value(target)
        if kind in ("record", "error") and shape == NOTHING:
            self.emit("STRUCT", self._node(target))
            return self.fields(found, target.parts, depth)
        if kind in ("array", "map") and shape == LIST and len(target.parts) == 1 + (kind == "map"):
            return self._items(found, target, depth)
        return self._scalar(found, target)

    def _null_value(self, target: Target) -> None:
        if target.nullable:
            self._null(target)
        else:
            self.emit("FAIL", -1, self._node(target), NOT_NULL)

    def _union(self, branches: list[Any], target: Target, depth: int) -> None:
        others = [each for each in branches if self._types.of(each) != {"type": "null"}]
        if len(others) > 1:
            raise SchemaError(f"{target.path} is a union of several types: only null and one other fit")
        self._branches(branches, lambda branch: self.read(branch, target, depth + 1))

    def _branches(self, branches: list[Any], compile_branch: Any) -> None:
        table = self._program.table
        begin = len(table)
        table += [0] * len(branches)
        self.emit("UNION", -1, begin, len(branches))
        jumps: list[int] = []
        for place, branch in enumerate(branches):
            table[begin + place] = len(self._program.code)
            compile_branch(branch)
            jumps.append(self.emit("JUMP"))
        for jump in jumps:
            self._patch(jump)

    def _items(self, found: Any, target: Target, depth: int) -> None:
        inner = found["items"] if found["type"] == "array" else found["values"]

        def body() -> None:
            if found["type"] == "map":
                self.emit("SIZED", self._node(target.parts[0]), 0, 1)
            self.read(inner, target.parts[-1], depth + 1)

        self._loop(found, inner, body)
        self.emit("LIST_END", self._node(target), 0, self._node(target.parts[0]))

    def _loop(self, found: Any, inner: Any, body: Any) -> None:
        self._loops += 1
        if self._loops > DEEPEST_LOOP:
            raise SchemaError("its arrays are nested too deeply")
        self.emit("LOOP")
        smallest = self._types.smallest(inner) + (found["type"] == "map")
        begin = self.emit("NEXT", -1, 0, smallest)
        body()
        self.emit("JUMP", -1, begin)
        self._patch(begin)
        self._loops -= 1

    def _scalar(self, found: Any, target: Target) -> None:
        logical, kind = str(found.get("logicalType")), found["type"]
        node = self._node(target)
        if _fits_decimal(found, target.type):
            limit = 10**target.type.precision
            place = len(self._program.table)
            self._program.table += [limit >> 64, _signed(limit & (1 << 64) - 1)]
            name = "FIXED_DECIMAL" if kind == "fixed" else "SIZED_DECIMAL"
            self.emit(name, node, place, found.get("size", 0))
        elif kind == "enum" and str(target.type) == "string":
            self._enum(found["symbols"], node)
        elif (kind, logical) == ("fixed", "uuid") and str(target.type) == "string":
            self.emit("FIXED_UUID", node)
        elif logical_types().get((kind, logical)) == target.type and kind in ("int", "long"):
            millis = logical.endswith("timestamp-millis")
            name = "MILLIS" if millis else ("INT32" if kind == "int" else "INT64")
            self.emit(name, node, _DAY.get(logical, 0))
        else:
            name, first, second = _plain(found, kind, target)
            self.emit(name, node, first, second)

    def _enum(self, symbols: Sequence[str], node: int) -> None:
        place = len(self._program.table)
        for symbol in symbols:
            begin = len(self._program.constants)
            self._program.constants += symbol.encode()
            self._program.table += [begin, len(self._program.constants) - begin]
        self.emit("ENUM", node, place, len(symbols))

    # -- what no column has

    def skip(self, schema: Any, depth: int) -> None:
        """Read past a value of any type."""
        found = self._of(schema, depth, "a field")
        if isinstance(found, list):
            return self._branches(found, lambda branch: self.skip(branch, depth + 1))
        kind = found["type"]
        if kind in ("record", "error"):
            for field in found["fields"]:
                self.skip(field["type"], depth + 1)
        elif kind in ("array", "map"):
            inner = found["items"] if kind == "array" else found["values"]

            def body() -> None:
                if kind == "map":
                    self.emit("SKIP_SIZED")
                self.skip(inner, depth + 1)

            self._loop(found, inner, body)
        elif kind == "fixed":
            self.emit("SKIP", -1, found["size"])
        else:
            name, size = _SKIPPED[kind]
            self.emit(name, -1, size)
        return None

    def _of(self, schema: Any, depth: int, path: str) -> Any:
        if depth > DEEPEST:
            raise SchemaError(f"{path} contains itself, or is nested deeper than {DEEPEST} types")
        return self._types.of(schema)


def _plain(found: Any, kind: str, target: Target) -> tuple[str, int, int]:
    """The instruction for a type that Avro's rules allow to be read as the column's."""
    column = str(target.type)
    narrow = int(kind == "int")
    if kind in ("bytes", "string") and column in ("string", "binary"):
        return "SIZED", 0, int(column == "string")
    known = {
        ("int", "int32"): ("INT32", 0, 1),
        ("int", "int64"): ("INT64", 0, 1),
        ("long", "int64"): ("INT64", 0, 0),
        ("float", "float"): ("FLOAT", 0, 0),
        ("float", "double"): ("FLOAT_AS_DOUBLE", 0, 0),
        ("double", "double"): ("DOUBLE", 0, 0),
        ("boolean", "bool"): ("BOOLEAN", 0, 0),
    }
    if kind in ("int", "long") and column in ("float", "double"):
        return f"LONG_AS_{column.upper()}", 0, narrow
    if kind == "fixed" and column == "binary":
        return "FIXED", int(found["size"]), 0
    if (kind, column) not in known:
        what = found.get("logicalType") or kind
        raise SchemaError(f"{target.path} is of type {what}, which cannot be read as {column}")
    return known[kind, column]


def _fits_decimal(found: Any, column: Any) -> bool:
    """Whether this is a decimal that the column holds: of the same scale, with at most as many digits."""
    if found.get("logicalType") != "decimal" or _kind(column) != DECIMAL:
        return False
    return bool(found["precision"] <= column.precision and found.get("scale", 0) == column.scale)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _kind(kind: Any) -> int:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return NOTHING
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return LIST
    if pa.types.is_decimal(kind):
        return DECIMAL
    if pa.types.is_boolean(kind):
        return BYTE
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return VARIABLE
    return WORD if kind.bit_width == 32 else LONG
