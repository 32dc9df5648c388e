"""Decodes Arrow arrays of Avro values into Arrow columns, without a Python object per record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.avro import kernel
from millstream.avro.instructions import BYTE, DECIMAL, ERRORS, LIST, LONG, NOTHING, VARIABLE, WORD
from millstream.avro.program import Program
from millstream.avro.targets import Target

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_ALIGNED: Final = 64
_WIDTHS: Final = {NOTHING: 0, BYTE: 1, WORD: 4, LONG: 8, DECIMAL: 16, VARIABLE: 4, LIST: 4}


@dataclass(frozen=True, slots=True)
class Decoded:
    """The columns of the good records, in their order, and a code for each record: 0 for a good one."""

    columns: pa.RecordBatch
    codes: NDArray[np.int64]


class AvroDecoder:
    """Decodes into these columns. ``compile`` a schema, then name its entry for each record. One thread."""

    def __init__(self, columns: Sequence[Target]) -> None:
        import pyarrow as pa

        self._program = Program(columns)
        self.schema = pa.schema([each.field for each in columns])
        self._frozen: tuple[Any, Any, Any] | None = None
        self._kinds = _constant(np.array(self._program.kinds, np.int64))
        self._bytes_per_row = np.full(len(self._program.nodes), 16.0)
        self._values_per_row = np.ones(len(self._program.nodes))

    def compile(self, schema: str | dict[str, Any] | list[Any]) -> int:
        """Return a writer's entry. Raises ValueError if its records cannot become the columns."""
        entry = self._program.compile(schema)
        self._frozen = None
        return entry

    def decode(self, values: pa.BinaryArray, entries: Any, prefixes: Any) -> Decoded:
        """Decode each value with the schema at its entry, after its prefix of so many bytes.

        A negative entry leaves the value out. A malformed value gets a code, which ``reason`` explains.
        """
        data, offsets = _buffers(values)
        starts = _constant(offsets[:-1].astype(np.int64) + prefixes)
        ends = _constant(offsets[1:].astype(np.int64))
        entries = np.where(starts <= ends, np.asarray(entries, np.int64), -1)
        codes = np.zeros(len(entries), np.int64)
        memory = self._memory(len(entries))
        state = np.zeros(3, np.int64)
        run = kernel.compiled()
        while True:
            status = run(
                *(data, starts, ends, _constant(entries), *self._instructions(), self._kinds),
                *(*memory.layout, memory.count, memory.used, memory.saved, codes, state, *memory.views),
            )
            if status == kernel.DONE:
                break
            memory.grow(int(state[1]), int(state[2]) if status == kernel.GROW_DATA else 0)
        self._learn(memory, len(entries))
        columns = [memory.array(target, self._program) for target in self._program.columns]
        return Decoded(_batch(columns, self.schema, codes, entries), codes)

    def reason(self, code: int) -> str:
        """What is wrong with a value, and in which column."""
        node = (code >> 8) - 1
        where = f"{self._program.nodes[node].path}: " if node >= 0 else ""
        return where + ERRORS[code & 255]

    def _instructions(self) -> tuple[Any, Any, Any]:
        if self._frozen is None:
            program = self._program
            self._frozen = (
                _constant(np.frombuffer(bytes(program.constants) or b"\0", np.uint8)),
                _constant(np.array(program.code, np.int64).reshape(-1, 4)),
                _constant(np.array(program.table or [0], np.int64)),
            )
        return self._frozen

    def _memory(self, rows: int) -> _Memory:
        values = [int(rows * ratio) + 1 for ratio in self._values_per_row]
        sizes = [
            int(rows * ratio) + 64 if kind == VARIABLE else 0
            for ratio, kind in zip(self._bytes_per_row, self._program.kinds, strict=True)
        ]
        return _Memory(self._program, values, sizes)

    def _learn(self, memory: _Memory, rows: int) -> None:
        """Begin the next batch with as much room as this one needed, and a little more."""
        if rows:
            self._values_per_row = np.maximum(memory.count / rows * 1.25, 1.0)
            self._bytes_per_row = np.maximum(memory.used / rows * 1.25, 1.0)


class _Memory:
    """One piece of memory for all nodes. A node has room for so many values, and bytes of variable size."""

    def __init__(self, program: Program, values: Sequence[int], sizes: Sequence[int]) -> None:
        self._program = program
        nodes = len(program.nodes)
        self.count, self.used = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        self.saved = np.zeros(2 * nodes, np.int64)
        self._values, self._sizes = list(values), list(sizes)
        self._allocate()

    def _allocate(self) -> None:
        nodes = len(self._values)
        self.null_at = np.full(nodes, -1, np.int64)
        self._main = np.zeros(nodes, np.int64)
        self.data_at = np.zeros(nodes, np.int64)
        at = 0
        for node, target in enumerate(self._program.nodes):
            if target.nullable:
                self.null_at[node] = at
                at += _rounded(self._values[node])
            self._main[node] = at
            at += _rounded((self._values[node] + 1) * _WIDTHS[self._program.kinds[node]])
            self.data_at[node] = at
            at += _rounded(self._sizes[node])
        self.bytes = np.empty(at + _ALIGNED, np.uint8)
        widths = np.array([min(_WIDTHS[kind], 8) or 1 for kind in self._program.kinds], np.int64)
        for node, kind in enumerate(self._program.kinds):
            if kind in (VARIABLE, LIST):
                self.bytes[self._main[node] : self._main[node] + 4] = 0
        self.layout = (
            *(self.null_at, self._main // widths, self.data_at),
            *(np.array(self._values, np.int64), np.array(self._sizes, np.int64)),
        )
        kinds = (np.uint8, np.int32, np.int64, np.float32, np.float64)
        self.views = tuple(self.bytes.view(each) for each in kinds)

    def grow(self, node: int, needed: int) -> None:
        """Give a node twice the room: for values, or for ``needed`` bytes of variable size."""
        before, nulls, main, data = self.bytes, self.null_at, self._main, self.data_at
        if needed:
            self._sizes[node] = max(2 * self._sizes[node], needed)
        else:
            self._values[node] *= 2
        self._allocate()
        for each, kind in enumerate(self._program.kinds):
            count = int(self.count[each])
            if nulls[each] >= 0:
                _copy(before, nulls[each], self.bytes, self.null_at[each], count)
            size = (count + (kind in (VARIABLE, LIST))) * _WIDTHS[kind]
            _copy(before, main[each], self.bytes, self._main[each], size)
            _copy(before, data[each], self.bytes, self.data_at[each], int(self.used[each]))

    def array(self, target: Target, program: Program) -> pa.Array:
        """The column of a node, over this memory."""
        import pyarrow as pa

        node = program.numbers[id(target)]
        kind, count = program.kinds[node], int(self.count[node])
        valid = None
        if target.nullable:
            present = self.bytes[self.null_at[node] : self.null_at[node] + count]
            if not present.all():
                valid = pa.py_buffer(np.packbits(present, bitorder="little"))
        parts = [self.array(part, program) for part in target.parts]
        main = self._main[node]
        values = self.bytes[main : main + (count + (kind in (VARIABLE, LIST))) * _WIDTHS[kind]]
        if kind == NOTHING:
            return pa.Array.from_buffers(target.type, count, [valid], children=parts)
        if kind == BYTE:
            values = np.packbits(values, bitorder="little")
        if kind == VARIABLE:
            data = self.bytes[self.data_at[node] : self.data_at[node] + int(self.used[node])]
            return pa.Array.from_buffers(
                target.type, count, [valid, pa.py_buffer(values), pa.py_buffer(data)]
            )
        if kind == LIST and len(parts) == 2:
            entries = pa.StructArray.from_arrays(
                parts, fields=[target.type.key_field, target.type.item_field]
            )
            parts = [entries]
        return pa.Array.from_buffers(target.type, count, [valid, pa.py_buffer(values)], children=parts)


def _batch(columns: list[pa.Array], schema: pa.Schema, codes: Any, entries: Any) -> pa.RecordBatch:
    import pyarrow as pa

    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    rows = int(((codes == 0) & (entries >= 0)).sum())
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _buffers(values: pa.BinaryArray) -> tuple[Any, Any]:
    _, offsets_buffer, buffer = values.buffers()
    if offsets_buffer is None or not len(values):
        return _constant(np.zeros(1, np.uint8)), np.zeros(1, np.int32)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.zeros(1, np.uint8) if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)
    return _constant(data), offsets


def _copy(source: Any, begin: int, into: Any, at: int, size: int) -> None:
    into[at : at + size] = source[begin : begin + size]


def _constant(array: Any) -> Any:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
