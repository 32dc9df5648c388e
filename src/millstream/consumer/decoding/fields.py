"""Array-backed columns, as the compiled decoder leaves them, that look like sequences of objects.

Objects are made on access. Arrow uses the arrays as they are.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from millstream.model import Header
from millstream.serde import FORMATS
from millstream.wire.records.decode import DecoderKernels
from millstream.wire.records.primitives import read_varint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_LIST_OVERHEAD: Final = 5  # marshal's bytes for a list, and for each object that has a size
_BYTES, _ASCII, _UTF8 = b"s"[0], b"a"[0], b"u"[0]


class Numbers(Sequence[Any]):
    """Numbers of one type; some may be None."""

    __slots__ = ("array", "valid")

    def __init__(self, array: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> None:
        """``valid``: which are not None; without it, all."""
        self.array = array
        self.valid = valid

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Numbers(self.array[index], None if self.valid is None else self.valid[index])
        return self.array[index].item() if self.valid is None or self.valid[index] else None

    def tolist(self) -> list[Any]:
        objects: list[Any] = self.array.tolist()
        if self.valid is not None:
            for row in (~self.valid).nonzero()[0].tolist():
                objects[row] = None
        return objects


class Fields(Sequence[Any]):
    """Pieces of one buffer, one behind the other: bytes, or None where the size is negative."""

    __slots__ = ("data", "kernels", "sizes", "starts")

    kind = _BYTES

    def __init__(
        self,
        kernels: DecoderKernels,
        data: NDArray[np.uint8],
        starts: NDArray[np.int32],
        sizes: NDArray[np.int32],
    ) -> None:
        self.kernels = kernels
        self.data = data
        self.starts = starts
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            if index.step not in (None, 1):  # the pieces must stay in the order of their places
                return self.tolist()[index]
            return type(self)(self.kernels, self.data, self.starts[index], self.sizes[index])
        start, size = int(self.starts[index]), int(self.sizes[index])
        return None if size < 0 else self._object(self.data[start : start + size].tobytes())

    def _object(self, raw: bytes) -> Any:
        return raw

    @property
    def span(self) -> tuple[int, int]:
        """The start of the first piece and the end of the last; there must be one."""
        return int(self.starts[0]), int(self.starts[-1]) + max(0, int(self.sizes[-1]))

    def tolist(self) -> list[Any]:
        """All objects, made in one go."""
        import numpy as np

        if not len(self):
            return []
        start, end = self.span  # with the gaps: memory that is not touched costs nothing
        packed = np.empty(_LIST_OVERHEAD * (1 + len(self)) + end - start, np.uint8)
        self.kernels.pack(self.data, self.starts, self.sizes, self.kind, packed)
        objects: list[Any] = marshal.loads(packed.data)
        return objects


class Texts(Fields):
    """Pieces that are known to be UTF-8, as str."""

    __slots__ = ()

    kind = _UTF8

    def _object(self, raw: bytes) -> Any:
        return raw.decode()


class AsciiTexts(Texts):
    """Pieces that are known to be ASCII."""

    __slots__ = ()

    kind = _ASCII


class HeaderFields(Sequence[tuple[Header, ...]]):
    """The headers of records, read on access; a negative place means none."""

    __slots__ = ("data", "places")

    def __init__(self, data: NDArray[np.uint8], places: NDArray[np.int32]) -> None:
        self.data = data
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[tuple[Header, ...]]:
        return map(self._read, self.places.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return HeaderFields(self.data, self.places[index])
        return self._read(int(self.places[index]))

    @property
    def end(self) -> int:
        """Where the last record's headers end; 0 if it has none. There must be a record."""
        position = int(self.places[-1])
        if position < 0:
            return 0
        data = self.data.data
        count, position = read_varint(data, position)
        for _ in range(2 * count):
            size, position = read_varint(data, position)
            position += max(0, size)
        return position

    def _read(self, place: int) -> tuple[Header, ...]:
        return () if place < 0 else _read_headers(self.data.data, place)


def _read_headers(data: memoryview, position: int) -> tuple[Header, ...]:
    """The headers at a place that the decoder has checked."""
    count, position = read_varint(data, position)
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_field(data, position)
        value, position = _read_field(data, position)
        headers.append(((name or b"").decode(errors="replace"), value))
    return tuple(headers)


def _read_field(data: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    return (None, position) if size < 0 else (bytes(data[position : position + size]), position + size)


class Same(Sequence[T]):
    """One object many times."""

    __slots__ = ("rows", "value")

    def __init__(self, value: T, rows: int) -> None:
        self.value = value
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[T]:
        return iter([self.value] * self.rows)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Same[T]: ...
    def __getitem__(self, index: int | slice) -> T | Same[T]:
        if isinstance(index, slice):
            return Same(self.value, len(range(self.rows)[index]))
        range(self.rows)[index]  # raises IndexError
        return self.value


# -- deserializing a whole column


def as_text(fields: Fields) -> Texts | None:
    """Fields as text; None when one of them is not UTF-8."""
    import numpy as np

    kernels = fields.kernels
    found = kernels.scan_text(fields.data, fields.starts, fields.sizes)
    if found == 0:
        return AsciiTexts(kernels, fields.data, fields.starts, fields.sizes)
    if found == 1:
        total, _ = kernels.measure(fields.sizes)
        joined = np.empty(total, np.uint8)
        ends, validity = np.empty(len(fields), np.int32), np.empty(len(fields) // 8 + 1, np.uint8)
        kernels.gather(fields.data, fields.starts, fields.sizes, ends, validity, joined, 0, 0)
        try:
            str(joined.data, "utf-8")
        except UnicodeDecodeError:
            return None
        return Texts(kernels, fields.data, fields.starts, fields.sizes)
    return None


def as_numbers(fields: Fields, dtype: str) -> Numbers | None:
    """Fields as numbers, whose type says their size and the order of their bytes; None if one has another."""
    import numpy as np

    array = np.zeros(len(fields), dtype)
    done = fields.kernels.gather_fixed(
        fields.data, fields.starts, fields.sizes, array.itemsize, array.view(np.uint8)
    )
    if done != len(fields):
        return None
    valid = fields.sizes >= 0
    return Numbers(array.astype(array.dtype.newbyteorder("=")), None if valid.all() else valid)


_TEXT: Final = FORMATS["string"].deserialize
_NUMBERS: Final = [(each.deserialize, each.layout) for each in FORMATS.values() if each.layout]


def deserialize_fields(fields: Fields, how: Callable[[bytes], Any]) -> Texts | Numbers | None:
    """Deserialize a column in one go; None where that is not known how, or where one of the fields fails."""
    if how is _TEXT:
        return as_text(fields)
    for known, dtype in _NUMBERS:
        if how is known:
            return as_numbers(fields, dtype)
    return None
