"""Keys, values and headers as the compiled encoder takes them: all bytes together, and where each field is.

Only for those who have the compiled loops: numpy, which these functions import, is there already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from millstream.model import Header
from millstream.producer.core.records import encode_headers
from millstream.producer.core.times import Times
from millstream.wire.records.batches import BATCH_OVERHEAD
from millstream.wire.records.encode import MAX_RECORD_OVERHEAD, Kernels

if TYPE_CHECKING:
    import numpy as np

    from millstream.wire.records.encode import Bytes, Longs

_LEAST_CAPACITY: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Column:
    """Fields as the pieces of one array of bytes. The size of null is -1."""

    data: Bytes
    starts: Longs
    sizes: Longs

    @property
    def arrays(self) -> tuple[Bytes, Longs, Longs]:
        return self.data, self.starts, self.sizes


@dataclass(frozen=True, slots=True)
class Columns:
    """Records by column. Times are milliseconds."""

    keys: Column
    values: Column
    headers: Column
    timestamps: Longs

    @property
    def field_sizes(self) -> Longs:
        """What keys, values and headers of each record take together."""
        fields = (self.keys.sizes, self.values.sizes, self.headers.sizes)
        return sum(sizes.clip(min=0) for sizes in fields)  # type: ignore[return-value]

    def write(
        self, kernels: Kernels, rows: Longs, first: int, out: Bytes, position: int, count: int, span: Any
    ) -> tuple[int, int, int]:
        """Write records into ``out`` from ``position`` on, as many as fit, behind ``count`` others.

        ``rows`` are the records, of which the one at ``first`` is next, and ``span`` the first and the latest
        time so far. Returns the place in ``rows`` of the next one, the next position, and the latest time.
        """
        columns = (*self.keys.arrays, *self.values.arrays, *self.headers.arrays, self.timestamps)
        return kernels.write_records(rows, first, *columns, out, position, len(out), count, *span)


# -- out of lists


def encode_lists(
    kernels: Kernels,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    times: Times,
    headers: Mapping[int, Sequence[Header]],
) -> Bytes:
    """A batch of the records, with room for its header in front."""
    import numpy as np

    count = len(values)
    columns = Columns(
        no_fields(count) if keys is None else column_of(keys),
        column_of(values),
        headers_of(headers, count) if headers else no_fields(count),
        times.expand_array(count),
    )
    size = sum(len(column.data) for column in (columns.keys, columns.values, columns.headers))
    out = np.empty(BATCH_OVERHEAD + size + MAX_RECORD_OVERHEAD * count, np.uint8)
    written, end, _ = columns.write(kernels, row_numbers(count), 0, out, BATCH_OVERHEAD, 0, times.span)
    assert written == count, "there is room for all"
    return out[:end]


def column_of(fields: Sequence[bytes | None]) -> Column:
    """The fields, joined."""
    import numpy as np

    count = len(fields)
    try:
        data = b"".join(fields)  # type: ignore[arg-type]
        sizes = np.fromiter(map(len, fields), np.int64, count)  # type: ignore[arg-type]
        ends = sizes.cumsum()
    except TypeError:  # there are nulls
        data = b"".join([field or b"" for field in fields])
        sizes = np.fromiter((-1 if field is None else len(field) for field in fields), np.int64, count)
        ends = sizes.clip(min=0).cumsum()
        return Column(np.frombuffer(data, np.uint8), ends - sizes.clip(min=0), sizes)
    return Column(np.frombuffer(data, np.uint8), ends - sizes, sizes)


def headers_of(headers: Mapping[int, Sequence[Header]], count: int) -> Column:
    """The headers of records by their place, encoded."""
    return column_of([encode_headers(headers[row]) if row in headers else None for row in range(count)])


def no_fields(count: int) -> Column:
    """Nothing but nulls."""
    data, starts, sizes = _nulls(_capacity(count))
    return Column(data, starts[:count], sizes[:count])


def row_numbers(count: int) -> Longs:
    """0, 1, 2, ..."""
    return _numbers(_capacity(count))[:count]


def _capacity(count: int) -> int:
    return max(_LEAST_CAPACITY, 1 << (count - 1).bit_length())


@cache
def _numbers(capacity: int) -> Longs:
    import numpy as np

    numbers: Longs = _kept(np.arange(capacity, dtype=np.int64))
    return numbers


@cache
def _nulls(capacity: int) -> tuple[Bytes, Longs, Longs]:
    import numpy as np

    starts, sizes = np.zeros(capacity, np.int64), np.full(capacity, -1, np.int64)
    return np.zeros(0, np.uint8), _kept(starts), _kept(sizes)


def _kept(array: np.ndarray[Any, Any]) -> Any:
    """Shared by all threads, so nobody may write to it."""
    array.setflags(write=False)
    return array
