"""``poll_arrow``: records as one Arrow record batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from millstream.consumer.columns import Columns
from millstream.errors import ConfigError
from millstream.serde import format_name

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
    import pyarrow as pa

    def joined(pieces: list[Any], kind: Any) -> Any:
        chunked = pa.chunked_array(pieces, type=kind)
        return chunked.combine_chunks() if len(pieces) != 1 else pieces[0]

    def column(name: str, kind: Any) -> Any:
        return joined([pa.array(getattr(part, name), kind) for part in columns], kind)

    topics = list(dict.fromkeys(part.topic for part in columns))
    places = [pa.array([topics.index(part.topic)] * len(part), pa.int32()) for part in columns]
    fields = {
        "topic": pa.DictionaryArray.from_arrays(joined(places, pa.int32()), pa.array(topics, pa.string())),
        "partition": joined([pa.array([p.partition] * len(p), pa.int32()) for p in columns], pa.int32()),
        "offset": column("offsets", pa.int64()),
        "timestamp": column("timestamps", pa.timestamp("ms", "UTC")),
        "timestamp_type": joined(
            [pa.array([int(p.timestamp_type)] * len(p), pa.int8()) for p in columns], pa.int8()
        ),
        "key": column("keys", key_type),
        "value": column("values", value_type),
    }
    if headers:
        fields["headers"] = column("headers", _header_type())
    return pa.RecordBatch.from_pydict(fields)


def _header_type() -> Any:
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
