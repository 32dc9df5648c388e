"""The compiled encoder, and records in columns as it takes them.

A column is one array of bytes with the start and size of each field. Functions here import numpy, which the
compiled encoder has loaded already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from millstream.model import Header
from millstream.producer.core.records import encode_headers
from millstream.producer.core.times import Times
from millstream.wire.records.batch_header import BATCH_OVERHEAD
from millstream.wire.records.encode import MAX_RECORD_OVERHEAD, EncoderKernels
from millstream.wire.records.jit import Loops

if TYPE_CHECKING:
    import numpy as np

    from millstream.wire.records.encode import Bytes, Longs

encoder: Final[Loops[EncoderKernels]] = Loops(volume_bytes=1 << 20)
"""The compiled encoder of this process, once it is loaded: after some 10 ms of encoding in plain Python."""

_LEAST_CAPACITY: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Fields as slices of one array of bytes. The size of null is -1."""

    data: Bytes
    starts: Longs
    sizes: Longs

    @property
    def arrays(self) -> tuple[Bytes, Longs, Longs]:
        return self.data, self.starts, self.sizes


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records by column. Timestamps are milliseconds since 1970."""

    keys: BytesColumn
    values: BytesColumn
    headers: BytesColumn
    timestamps: Longs

    @property
    def field_sizes(self) -> Longs:
        """The bytes of each record's key, value and headers together."""
        fields = (self.keys.sizes, self.values.sizes, self.headers.sizes)
        return sum(sizes.clip(min=0) for sizes in fields)  # type: ignore[return-value]

    def write(
        self,
        kernels: EncoderKernels,
        rows: Longs,
        first: int,
        out: Bytes,
        position: int,
        count: int,
        span: Any,
    ) -> tuple[int, int, int]:
        """Write the records ``rows[first:]`` into ``out`` from ``position`` on, as many as fit.

        ``count`` records are in the batch already; ``span`` is their first and their latest timestamp.
        Returns the index of the next record in ``rows``, the next position, and the latest timestamp.
        """
        columns = (*self.keys.arrays, *self.values.arrays, *self.headers.arrays, self.timestamps)
        return kernels.write_records(rows, first, *columns, out, position, len(out), count, *span)


# -- columns from lists


def encode_lists(
    kernels: EncoderKernels,
    keys: Sequence[bytes | None] | None,
    values: Sequence[bytes | None],
    times: Times,
    headers: Mapping[int, Sequence[Header]],
) -> Bytes:
    """Encode the records of a batch, with room for its header in front."""
    import numpy as np

    count = len(values)
    columns = RecordColumns(
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


def column_of(fields: Sequence[bytes | None]) -> BytesColumn:
    """Join fields into one column."""
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
        return BytesColumn(np.frombuffer(data, np.uint8), ends - sizes.clip(min=0), sizes)
    return BytesColumn(np.frombuffer(data, np.uint8), ends - sizes, sizes)


def headers_of(headers: Mapping[int, Sequence[Header]], count: int) -> BytesColumn:
    """The headers of ``count`` records, encoded; ``headers`` maps the index of a record to its headers."""
    return column_of([encode_headers(headers[row]) if row in headers else None for row in range(count)])


def no_fields(count: int) -> BytesColumn:
    """A column of ``count`` nulls."""
    data, starts, sizes = _nulls(_capacity(count))
    return BytesColumn(data, starts[:count], sizes[:count])


def row_numbers(count: int) -> Longs:
    """0, 1, 2, ..."""
    return _numbers(_capacity(count))[:count]


def _capacity(count: int) -> int:
    return max(_LEAST_CAPACITY, 1 << (count - 1).bit_length())


@cache
def _numbers(capacity: int) -> Longs:
    import numpy as np

    numbers: Longs = _read_only(np.arange(capacity, dtype=np.int64))
    return numbers


@cache
def _nulls(capacity: int) -> tuple[Bytes, Longs, Longs]:
    import numpy as np

    starts, sizes = np.zeros(capacity, np.int64), np.full(capacity, -1, np.int64)
    return np.zeros(0, np.uint8), _read_only(starts), _read_only(sizes)


def _read_only(array: np.ndarray[Any, Any]) -> Any:
    """Make an array read-only, as all threads share it."""
    array.setflags(write=False)
    return array
