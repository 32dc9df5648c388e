"""The compiled encoder, and records in columns as it takes them.

A column is one array of bytes with the start and size of each field. Functions here import numpy, which the
compiled encoder has loaded already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.model import Header
from millstream.producer.core.records import encode_headers
from millstream.producer.core.times import Times, expand_together
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


class RecordLists(Protocol):
    """The records of a batch: lists of keys (None: no record has one) and values, and the rest by index."""

    keys: list[bytes | None] | None
    values: list[bytes | None]
    times: Times
    headers: dict[int, Sequence[Header]]


def encode_lists(kernels: EncoderKernels, batches: Sequence[RecordLists]) -> tuple[Bytes, list[int]]:
    """Encode the records of batches, with room for its header in front of each; returns where each ends."""
    import numpy as np

    counts = [len(batch.values) for batch in batches]
    ends = np.array(counts, np.int64).cumsum()
    count = int(ends[-1])
    columns = RecordColumns(
        no_fields(count) if all(batch.keys is None for batch in batches) else column_of(_keys_of(batches)),
        column_of(list(chain.from_iterable([batch.values for batch in batches]))),
        headers_of(_headers_by_row(batches, ends.tolist()), count),
        expand_together([batch.times for batch in batches], counts),
    )
    size = sum(len(column.data) for column in (columns.keys, columns.values, columns.headers))
    out = np.empty(BATCH_OVERHEAD * len(counts) + size + MAX_RECORD_OVERHEAD * count, np.uint8)
    out_ends = np.empty(len(counts), np.int64)
    arrays = (*columns.keys.arrays, *columns.values.arrays, *columns.headers.arrays, columns.timestamps)
    kernels.write_batches(ends, *arrays, out, BATCH_OVERHEAD, out_ends)
    return out, out_ends.tolist()


def _headers_by_row(batches: Sequence[RecordLists], ends: Sequence[int]) -> dict[int, Sequence[Header]]:
    return {
        end - len(batch.values) + row: headers
        for batch, end in zip(batches, ends, strict=True)
        if batch.headers
        for row, headers in batch.headers.items()
    }


def _keys_of(batches: Sequence[RecordLists]) -> list[bytes | None]:
    return [key for batch in batches for key in batch.keys or [None] * len(batch.values)]


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
    if not headers:
        return no_fields(count)
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
