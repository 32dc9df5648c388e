"""What a table is partitioned by, in the words of ``partition_by``: kept by tables, compared with a load's.

A derived column says how in its Arrow field's metadata, under ``DERIVED``. A sink keeps that with the table:
later loads derive the column in the same way, and need not be told (``RemembersPartitions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from millstream.spark.sinks.base import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

DERIVED: Final = "millstream.derived"
"""The key in a field's metadata that says how a partition column is derived: ``date(_timestamp)``."""
_AS: Final = " AS "


def spelled(name: str, derivation: str | None) -> str:
    """A column as in ``partition_by``: ``country``, or ``date(_timestamp) AS day``."""
    return f"{derivation}{_AS}{name}" if derivation else name


def spelled_in(schema: pa.Schema, names: Sequence[str]) -> tuple[str, ...]:
    """The partition columns of a load."""
    return tuple(spelled(name, derivation(schema.field(name))) for name in names)


def derivation(field: pa.Field) -> str | None:
    """How a column of a load is derived, if it is."""
    found: dict[bytes, bytes] = field.metadata or {}
    return found[DERIVED.encode()].decode() if DERIVED.encode() in found else None


def require_same(table: str, there: Sequence[str], ours: Sequence[str]) -> None:
    """Raise SinkError where a load would partition an existing table in another way than it is.

    Either side may not say how a column is derived: then only the name counts.
    """
    pairs = zip(there, ours, strict=False)
    if len(there) == len(ours) and all(_may_be_same(*pair) for pair in pairs):
        return
    now = f"is partitioned by ({', '.join(there)})" if there else "has no partitions"
    raise SinkError(
        f"{table} {now}, and cannot be partitioned by ({', '.join(ours)}): leave out partition_by "
        "(--partition-by), or load into another table"
    )


def _may_be_same(there: str, ours: str) -> bool:
    if _AS in there and _AS in ours:
        return there == ours
    return there.rpartition(_AS)[2] == ours.rpartition(_AS)[2]
