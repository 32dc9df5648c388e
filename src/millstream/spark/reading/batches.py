"""Builds the Arrow record batches that Spark expects from a consumer's columns; only the chosen ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer.decoding.arrow import joined
from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.fields import Numbers, Same
from millstream.spark.reading import schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_MICROSECONDS: Final = 1000
"""In a millisecond: Kafka's timestamps are in milliseconds, Spark's in microseconds."""


class BatchBuilder:
    """Builds record batches from the columns of one partition."""

    def __init__(self, topic: str, partition: int, chosen: Sequence[str]) -> None:
        self._schema = schema.arrow_schema(chosen)
        self._constants = {"topic": topic, "partition": partition}
        self._repeated: dict[tuple[str, object], Any] = {}
        build: dict[str, Callable[[Sequence[Columns]], Any]] = {
            "key": partial(_binary, "keys"),
            "value": partial(_binary, "values"),
            "topic": partial(self._constant, "topic"),
            "partition": partial(self._constant, "partition"),
            "offset": _offsets,
            "timestamp": _timestamps,
            "timestampType": self._timestamp_types,
            schema.HEADERS: self._headers,
        }
        self._builders = [build[name] for name in chosen]

    def build(self, columns: Sequence[Columns]) -> pa.RecordBatch:
        """One batch with all rows of ``columns``, which must not be empty."""
        import pyarrow as pa

        if not self._builders:  # a count needs no columns, only rows
            return pa.RecordBatch.from_struct_array(pa.array([{}] * _rows(columns), pa.struct([])))
        arrays = [build(columns) for build in self._builders]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, columns: Sequence[Columns]) -> Any:
        return self._repeat(name, self._constants[name], _rows(columns))

    def _timestamp_types(self, columns: Sequence[Columns]) -> Any:
        import pyarrow as pa

        types = {int(part.timestamp_type) for part in columns}
        if len(types) == 1:
            return self._repeat("timestampType", types.pop(), _rows(columns))
        return pa.concat_arrays(
            [self._repeat("timestampType", int(part.timestamp_type), len(part)) for part in columns]
        )

    def _headers(self, columns: Sequence[Columns]) -> Any:
        """Null for a record without headers, as in Spark's own source."""
        import pyarrow as pa

        if all(isinstance(part.headers, Same) and not part.headers.value for part in columns):
            return self._repeat(schema.HEADERS, None, _rows(columns))
        kind = schema.arrow_types()[schema.HEADERS]
        return pa.array([headers or None for part in columns for headers in part.headers], kind)

    def _repeat(self, name: str, value: object, rows: int) -> Any:
        """``value`` repeated ``rows`` times: a slice of an array that is kept for the next batches."""
        import pyarrow as pa

        kept = self._repeated.get((name, value))
        if kept is None or len(kept) < rows:
            scalar = pa.scalar(value, schema.arrow_types()[name])
            kept = self._repeated[name, value] = pa.repeat(scalar, _rounded(rows))
        return kept.slice(0, rows)


def _rows(columns: Sequence[Columns]) -> int:
    return sum(map(len, columns))


def _rounded(rows: int) -> int:
    """Up to a power of two: batches have nearly the same size, so one array serves all of them."""
    return 1 << (rows - 1).bit_length()


def _binary(name: str, columns: Sequence[Columns]) -> Any:
    return joined([getattr(part, name) for part in columns], schema.arrow_types()["value"])


def _offsets(columns: Sequence[Columns]) -> Any:
    return _from_numpy(_numbers([part.offsets for part in columns]), "offset")


def _timestamps(columns: Sequence[Columns]) -> Any:
    return _from_numpy(_numbers([part.timestamps for part in columns]) * _MICROSECONDS, "timestamp")


def _numbers(parts: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    import numpy as np

    arrays = [part.array if isinstance(part, Numbers) else np.array(part, np.int64) for part in parts]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _from_numpy(numbers: NDArray[np.int64], name: str) -> Any:
    """Without ``pyarrow.array``, which imports pandas if installed: half a second in each worker."""
    import numpy as np
    import pyarrow as pa

    buffers = [None, pa.py_buffer(np.ascontiguousarray(numbers))]
    return pa.Array.from_buffers(schema.arrow_types()[name], len(numbers), buffers)
