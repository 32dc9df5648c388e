"""The sink kind ``delta:DIR``: a Delta table in a directory or an object store, or one for each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.extras import require
from millstream.spark.sinks.kinds import SinkAddress, SinkKind
from millstream.suggestions import did_you_mean

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink
    from millstream.spark.sinks.delta.places.place import Place


_TOPIC: Final = "{topic}"


def _make(address: SinkAddress) -> Sink:
    if not address.rest:
        raise ConfigError("delta: needs a directory or a URL: delta:lake/orders, delta:s3://bucket/orders")
    require("deltalake", "spark")
    from millstream.spark.sinks.delta.sink import TARGET_FILE_SIZE, DeltaSink

    size = TARGET_FILE_SIZE if address.target_file_size is None else address.target_file_size
    if _TOPIC in address.rest:
        from millstream.spark.sinks.delta.per_topic import DeltaTopicsSink

        return DeltaTopicsSink(address.rest, storage_options=address.storage_options, target_file_size=size)
    return DeltaSink(address.rest, storage_options=address.storage_options, target_file_size=size)


def _missing(address: SinkAddress, sink: Sink) -> str | None:
    if _TOPIC in address.rest:
        from millstream.spark.sinks.delta.per_topic import DeltaTopicsSink

        found = isinstance(sink, DeltaTopicsSink) and sink.topics()
        return None if found else f"there is no table {address.text} of any topic: check the directory"
    from millstream.spark.sinks.delta.places.place import place_of

    table = place_of(address.rest, address.storage_options)
    if _is_table(table) or _is_table(table.with_name(f"{table.name}_rejected")):
        return None
    beside = [path.name for path in table.parent.glob("*") if _is_table(path)]
    hint = did_you_mean(table.name, beside, show=lambda near: f"delta:{_beside(address.rest, near)}")
    return f"there is no table {address.text}: {hint or 'check the directory'}"


def _is_table(path: Place) -> bool:
    return (path / "_delta_log").is_dir()


def _beside(typed: str, name: str) -> str:
    parent, slash, _ = typed.rstrip("/").rpartition("/")
    return f"{parent}{slash}{name}"


DELTA: Final = SinkKind("delta:DIR", _make, _missing, has_files=True)
