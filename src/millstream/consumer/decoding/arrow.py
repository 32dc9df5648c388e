"""``poll_arrow``: records as one Arrow record batch.

Array-backed columns are copied once, into the buffers of the batch; no object is made for a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

from millstream.consumer.decoding.columns import Columns
from millstream.consumer.decoding.fields import Fields, Numbers
from millstream.errors import ConfigError
from millstream.serde import FORMATS, format_name

_SAME_ROWS: Final = 1 << 16
"""Up to this length, columns of equal numbers are slices of one shared array."""


def column_type(deserializer: object, setting: str) -> Any:
    """The Arrow type of keys or values; raises ConfigError for a deserializer that has none."""
    import pyarrow as pa

    name = format_name(deserializer)
    kind = FORMATS[name].arrow if name else None
    if kind is None:
        known = ", ".join(each.name for each in FORMATS.values() if each.arrow)
        shown = name or getattr(deserializer, "__name__", repr(deserializer))
        raise ConfigError(
            f"poll_arrow() cannot make a column of {setting}={shown}: use {known}. "
            "Arrow and Spark can decode a column of bytes",
            setting=setting,
        )
    return getattr(pa, kind)()


def to_record_batch(columns: Sequence[Columns], key_type: Any, value_type: Any, *, headers: bool) -> Any:
    """Join columns into one batch, one row a record."""
    import pyarrow as pa

    sizes = [len(part) for part in columns]
    topics = tuple(dict.fromkeys(part.topic for part in columns))
    places = _repeated([topics.index(part.topic) for part in columns], sizes, pa.int32())
    arrays = [
        pa.DictionaryArray.from_arrays(places, _words(topics), safe=False),  # the indices are our own
        _repeated([part.partition for part in columns], sizes, pa.int32()),
        joined([part.offsets for part in columns], pa.int64()),
        joined([part.timestamps for part in columns], pa.timestamp("ms", "UTC")),
        _repeated([int(part.timestamp_type) for part in columns], sizes, pa.int8()),
        joined([part.keys for part in columns], key_type),
        joined([part.values for part in columns], value_type),
    ]
    if headers:
        arrays.append(joined([part.headers for part in columns], header_type()))
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(key_type, value_type, headers))


@cache
def _schema(key_type: Any, value_type: Any, headers: bool) -> Any:
    import pyarrow as pa

    fields = [
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestamp_type", pa.int8()),
        ("key", key_type),
        ("value", value_type),
    ]
    return pa.schema([*fields, ("headers", header_type())] if headers else fields)


@lru_cache(maxsize=8)
def _words(words: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return _from_objects(words, pa.string())


def _repeated(values: Sequence[int], sizes: Sequence[int], kind: Any) -> Any:
    """Each of the numbers as many times as its size says."""
    import numpy as np

    rows = sum(sizes)
    if rows <= _SAME_ROWS and len(set(values)) == 1:
        return _same(values[0], kind).slice(0, rows)
    return _from_numpy(np.repeat(np.array(values, kind.to_pandas_dtype()), sizes), kind)


@lru_cache(maxsize=8)
def _same(value: int, kind: Any) -> Any:
    """One number many times, read-only: many batches share slices of it."""
    import numpy as np

    array = np.full(_SAME_ROWS, value, kind.to_pandas_dtype())
    array.flags.writeable = False
    return _from_numpy(array, kind)


def joined(parts: Sequence[Sequence[Any]], kind: Any) -> Any:
    """One array of all parts, each a column of ``Columns``."""
    import pyarrow as pa

    fields = [part for part in parts if isinstance(part, Fields)]
    if fields and len(fields) == len(parts):
        return _gather(fields, kind)
    arrays = [_array(part, kind) for part in parts]
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays, kind).combine_chunks()


def _array(part: Sequence[Any], kind: Any) -> Any:

    if isinstance(part, Fields):
        return _gather([part], kind)
    if isinstance(part, Numbers):
        return _from_numpy(part.array, kind, part.valid)
    return _from_objects(part, kind)


# ``pyarrow.array`` imports pandas, if it is installed, to see whether it was given one of its objects. That
# takes longer than the rest of a first poll, so arrays are built from buffers here.


def _from_objects(objects: Sequence[Any], kind: Any) -> Any:
    """Bytes, text, or numbers of 64 bits; others as pyarrow does it."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_timestamp(kind) or (pa.types.is_int64(kind) and None not in objects):
        return _from_numpy(np.array(objects, np.int64), kind)
    if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        return pa.array(objects, kind)
    raw = [each.encode() if isinstance(each, str) else each for each in objects]
    ends = np.zeros(len(raw) + 1, np.int32)
    np.cumsum([len(each or b"") for each in raw], out=ends[1:])
    nulls = raw.count(None)
    valid = np.packbits([each is not None for each in raw], bitorder="little") if nulls else None
    text = b"".join(each for each in raw if each is not None)
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(text)]
    return pa.Array.from_buffers(kind, len(raw), buffers, nulls)


def _from_numpy(array: Any, kind: Any, valid: Any = None) -> Any:
    """An Arrow array over ``array``, whose items have the type's size; ``valid``: which are not null."""
    import numpy as np
    import pyarrow as pa

    assert array.itemsize * 8 == kind.bit_width, "a number deserializer gives numbers of its type"
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [bits, pa.py_buffer(np.ascontiguousarray(array))])


def _gather(parts: Sequence[Fields], kind: Any) -> Any:
    """Gather binary or text fields into one Arrow array, copied once."""
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


def header_type() -> Any:
    """The Arrow type of a record's headers."""
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
