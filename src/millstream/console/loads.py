"""Loads, found by the metadata of the offsets that they commit, and the status of their tables.

Only tables that were named when the console was started are opened: anyone can write the metadata of a
commit, so nothing is opened because of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.admin import Admin
from millstream.console.cluster_snapshot import ClusterSnapshot, SampledGroup
from millstream.errors import MillstreamError
from millstream.model import TopicPartition
from millstream.spark.load.decisions.commit_metadata import STARTING, CommitMetadata, read_commit_metadata

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """A load of a group into one table, as the metadata of its commits says."""

    group: str
    table: str
    partitions: tuple[TopicPartition, ...]
    lag: int
    cycle: str
    """The id of the last cycle; empty before the first."""

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.partitions})


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of the loads into a table, as in ``millstream load status``."""

    table: str
    statuses: tuple[Mapping[str, Any], ...] = ()
    note: str = ""
    """Why there is no status."""


def loads_in(snapshot: ClusterSnapshot) -> list[LoadSummary]:
    """All loads, by group and table."""
    return [load for group in snapshot.groups.values() for load in _loads_of(group)]


def _loads_of(group: SampledGroup) -> list[LoadSummary]:
    by_table: dict[str, list[tuple[TopicPartition, CommitMetadata, int]]] = {}
    for one in group.description.partitions:
        loaded_by = read_commit_metadata(one.metadata)
        if loaded_by is not None:
            place = TopicPartition(one.topic, one.partition)
            by_table.setdefault(loaded_by.sink, []).append((place, loaded_by, one.lag or 0))
    return [
        LoadSummary(
            group=group.name,
            table=table,
            partitions=tuple(place for place, _, _ in found),
            lag=sum(lag for _, _, lag in found),
            cycle=max(
                (loaded_by.cycle_id for _, loaded_by, _ in found if loaded_by.cycle_id != STARTING),
                default="",
            ),
        )
        for table, found in sorted(by_table.items())
    ]


def open_tables(addresses: Sequence[str], settings: Mapping[str, object]) -> list[Sink]:
    """The tables at these addresses, as ``millstream load --to`` takes them. Connects to nothing yet."""
    if not addresses:
        return []
    from millstream.spark.sinks.kinds import sink_for

    return [sink_for(address, (), settings) for address in addresses]


def table_status(admin: Admin, sink: Sink, loads: Iterable[LoadSummary]) -> TableStatus:
    """The status of each load into a table. Blocks; an error becomes a note."""
    from millstream.spark.load.status import status
    from millstream.spark.sinks.capabilities import names_of

    names = names_of(sink)
    try:
        into = _into(sink, names, list(loads))
        found = [status(admin, sink, load.group, load.topics).as_dict() for load in into]
    except MillstreamError as error:
        return TableStatus(names[0], note=" ".join(str(error).split()))
    except Exception as error:
        log.exception("the status of table %s cannot be read", sink.name)
        return TableStatus(names[0], note=f"its status cannot be read: {type(error).__name__}")
    return TableStatus(names[0], tuple(found), "" if found else "no group has loaded into this table yet")


def _into(sink: Sink, names: Sequence[str], loads: list[LoadSummary]) -> list[LoadSummary]:
    """The loads that name this table or, as a path has several spellings, whose progress it holds."""
    named = [load for load in loads if load.table in names]
    if named:
        return named
    return [
        load
        for load in loads
        if any(one.rows or one.rejected for one in sink.standing(load.group, load.partitions).values())
    ]


def load_rows(
    loads: Sequence[LoadSummary], tables: Sequence[TableStatus], snapshot: ClusterSnapshot
) -> list[dict[str, Any]]:
    """Loads with the status of their tables, then the named tables without a load."""
    by_load = {(status["group"], table.table): status for table in tables for status in table.statuses}
    by_group = {status["group"]: status for status in by_load.values()}
    notes = {table.table: table.note for table in tables if table.note}
    rows: list[dict[str, Any]] = []
    for load in loads:
        group = snapshot.groups[load.group].description
        rows.append(
            {
                "group": load.group,
                "table": load.table,
                "topics": load.topics,
                "state": group.state,
                "members": len(group.members),
                "lag": load.lag,
                "last_cycle": load.cycle,
                "status": by_load.get((load.group, load.table), by_group.get(load.group)),
                "note": notes.pop(load.table, ""),
            }
        )
    unused: dict[str, Any] = {
        "group": None,
        "topics": [],
        "state": None,
        "members": 0,
        "lag": None,
        "last_cycle": "",
    }
    return rows + [{**unused, "table": table, "status": None, "note": note} for table, note in notes.items()]
