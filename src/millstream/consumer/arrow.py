"""``poll_arrow``: records as one Arrow record batch.

Columns that lie in arrays are copied once, into the buffers of the batch; no object is made for a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer.columns import Columns
from millstream.consumer.fields import Fields, Numbers
from millstream.errors import ConfigError
from millstream.serde import format_name

if TYPE_CHECKING:
    from collections.abc import Iterable

_TYPES: Final = {
    "bytes": "binary",
    "string": "string",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "boolean": "bool_",
}
"""The Arrow type of a column for each deserializer that has one."""


def column_type(deserializer: object, setting: str) -> Any:
    """The Arrow type of keys or values; raises ConfigError for a deserializer that has none."""
    import pyarrow as pa

    name = format_name(deserializer)
    kind = _TYPES.get(name or "")
    if kind is None:
        shown = name or getattr(deserializer, "__name__", repr(deserializer))
        raise ConfigError(
            f"poll_arrow() cannot make a column of {setting}={shown}: use bytes, string or a number, and "
            "decode the binary column with Arrow or Spark"
        )
    return getattr(pa, kind)()


def to_record_batch(columns: Sequence[Columns], key_type: Any, value_type: Any, *, headers: bool) -> Any:
    """Put columns together, one row a record."""
    import numpy as np
    import pyarrow as pa

    sizes = [len(part) for part in columns]

    def repeated(values: Iterable[int], dtype: Any) -> Any:
        return pa.array(np.repeat(np.fromiter(values, dtype, len(sizes)), sizes))

    topics = list(dict.fromkeys(part.topic for part in columns))
    places = repeated((topics.index(part.topic) for part in columns), np.int32)
    fields = {
        "topic": pa.DictionaryArray.from_arrays(places, pa.array(topics, pa.string())),
        "partition": repeated((part.partition for part in columns), np.int32),
        "offset": _joined([part.offsets for part in columns], pa.int64()),
        "timestamp": _joined([part.timestamps for part in columns], pa.timestamp("ms", "UTC")),
        "timestamp_type": repeated((part.timestamp_type for part in columns), np.int8),
        "key": _joined([part.keys for part in columns], key_type),
        "value": _joined([part.values for part in columns], value_type),
    }
    if headers:
        fields["headers"] = _joined([part.headers for part in columns], _header_type())
    return pa.RecordBatch.from_pydict(fields)


def _joined(parts: Sequence[Sequence[Any]], kind: Any) -> Any:
    """One array of all parts."""
    import pyarrow as pa

    fields = [part for part in parts if isinstance(part, Fields)]
    if fields and len(fields) == len(parts):
        return _gather(fields, kind)
    arrays = [_array(part, kind) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays, kind).combine_chunks()


def _array(part: Sequence[Any], kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(part, Fields):
        return _gather([part], kind)
    if isinstance(part, Numbers):
        nulls = None if part.valid is None else ~part.valid
        return pa.array(part.array, mask=nulls).cast(kind)
    return pa.array(part, kind)


def _gather(parts: Sequence[Fields], kind: Any) -> Any:
    """Binary or text from the places where it lies, copied once."""
    import numpy as np
    import pyarrow as pa

    kernels = parts[0].kernels
    measured = [kernels.measure(part.sizes) for part in parts]
    rows = sum(len(part) for part in parts)
    nulls = sum(nulls for _, nulls in measured)
    if nulls == rows:
        return pa.nulls(rows, kind)
    out = np.empty(sum(total for total, _ in measured), np.uint8)
    ends = np.zeros(rows + 1, np.int32)
    validity = np.full(rows // 8 + 1, 0xFF, np.uint8)
    row = position = 0
    for part in parts:
        position = kernels.gather(part.data, part.starts, part.sizes, ends[1:], validity, out, row, position)
        row += len(part)
    buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(ends), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, rows, buffers, nulls)


def _header_type() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
