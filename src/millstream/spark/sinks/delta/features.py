"""Table features: which Delta tables a load can write to.

Tasks write files without delta-rs, so nothing that it does on a write (check a constraint, fill in a
generated column, map a name) happens. A table that depends on it is refused.
"""

from __future__ import annotations

import json
from typing import Any, Final

from deltalake import DeltaTable

from millstream.spark.sinks.base import SinkError
from millstream.spark.sinks.delta.places.place import Place

RETENTION: Final = "delta.setTransactionRetentionDuration"
_HARMLESS: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "vacuumProtocolCheck",
    }
)
"""Features that a table may list: where they are in use, its properties or columns show it."""
_ON: Final = {
    "delta.enableRowTracking": "row tracking",
    "delta.enableIcebergCompatV1": "Iceberg compatibility",
    "delta.enableIcebergCompatV2": "Iceberg compatibility",
    "delta.enableInCommitTimestamps": "in-commit timestamps",
    "delta.randomizeFilePrefixes": "random file prefixes",
}
_OF_COLUMNS: Final = {
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
    "delta.invariants": "invariants",
}


def check_features(handle: DeltaTable, directory: Place) -> None:
    """Raise SinkError for a table that a load must not write to."""
    settings = handle.metadata().configuration
    if RETENTION in settings:
        raise SinkError(
            f"the Delta table {directory} forgets old transactions ({RETENTION}={settings[RETENTION]}), and "
            "with them the load's progress. Unset it (ALTER TABLE … UNSET TBLPROPERTIES "
            f"('{RETENTION}')), or load into another table"
        )
    used = [*_by_settings(settings), *_by_columns(json.loads(handle.schema().to_json())), *_unknown(handle)]
    if used:
        raise SinkError(
            f"the Delta table {directory} uses {', '.join(sorted(set(used)))}, which a load does not "
            "support. Load into a table without it, and fill this one from there"
        )


def _by_settings(settings: dict[str, str]) -> list[str]:
    used = [what for name, what in _ON.items() if settings.get(name, "").lower() == "true"]
    if settings.get("delta.columnMapping.mode", "none").lower() != "none":
        used.append("column mapping")
    if any(name.startswith("delta.constraints.") for name in settings):
        used.append("check constraints")
    return used


def _by_columns(schema: dict[str, Any]) -> list[str]:
    return [
        what
        for column in schema["fields"]
        for name, what in _OF_COLUMNS.items()
        if name in column["metadata"]
    ]


def _unknown(handle: DeltaTable) -> list[str]:
    protocol = handle.protocol()
    listed = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    return [f"the feature {name}" for name in listed - _HARMLESS]
