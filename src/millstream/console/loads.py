"""Loads: which groups are loads, and into which tables, is written beside the offsets that they commit.

What a table itself holds is asked only of tables that were named when the console was started: the note of a
commit is somebody's text, and nothing is opened because a note says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.admin import Admin
from millstream.console.looking import GroupLook, Snapshot
from millstream.errors import MillstreamError
from millstream.model import TopicPartition
from millstream.spark.load.decisions.commit_metadata import STARTING, Mark, read_mark

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadLook:
    """A group that is a load, as its own commits say."""

    group: str
    table: str
    partitions: tuple[TopicPartition, ...]
    lag: int
    cycle: str
    """The id of its last cycle; empty before the first."""

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.partitions})


@dataclass(frozen=True, slots=True)
class TableLook:
    """What a table says of the loads into it, as ``millstream load status`` does."""

    table: str
    statuses: tuple[Mapping[str, Any], ...] = ()
    note: str = ""
    """Why there is nothing to say."""


def loads_in(snapshot: Snapshot) -> list[LoadLook]:
    """All loads, by group and table."""
    return [load for group in snapshot.groups.values() for load in _loads_of(group)]


def _loads_of(group: GroupLook) -> list[LoadLook]:
    by_table: dict[str, list[tuple[TopicPartition, Mark, int]]] = {}
    for one in group.description.partitions:
        mark = read_mark(one.metadata)
        if mark is not None:
            place = TopicPartition(one.topic, one.partition)
            by_table.setdefault(mark.sink, []).append((place, mark, one.lag or 0))
    return [
        LoadLook(
            group=group.name,
            table=table,
            partitions=tuple(place for place, _, _ in found),
            lag=sum(lag for _, _, lag in found),
            cycle=max((mark.cycle_id for _, mark, _ in found if mark.cycle_id != STARTING), default=""),
        )
        for table, found in sorted(by_table.items())
    ]


def open_tables(addresses: Sequence[str], settings: Mapping[str, object]) -> list[Sink]:
    """The tables at these addresses, as ``millstream load --to`` takes them. Connects to nothing yet."""
    if not addresses:
        return []
    from millstream.spark.sinks.kinds import sink_for

    return [sink_for(address, (), settings) for address in addresses]


def look_at_table(admin: Admin, sink: Sink, loads: Iterable[LoadLook]) -> TableLook:
    """Ask a table for each load into it. Blocks; an error is a note."""
    from millstream.spark.load.status import status

    try:
        found = [status(admin, sink, load.group, load.topics).as_dict() for load in _into(sink, list(loads))]
    except MillstreamError as error:
        return TableLook(sink.name, note=" ".join(str(error).split()))
    except Exception as error:
        log.exception("the table %s cannot be looked at", sink.name)
        return TableLook(sink.name, note=f"it cannot be looked at: {type(error).__name__}")
    return TableLook(sink.name, tuple(found), "" if found else "no group has loaded into this table yet")


def _into(sink: Sink, loads: list[LoadLook]) -> list[LoadLook]:
    """The loads into a table: those that give its name, or else, as a path can be spelled in several ways,
    those whose progress the table has.
    """
    named = [load for load in loads if load.table == sink.name]
    if named:
        return named
    return [
        load
        for load in loads
        if any(one.rows or one.rejected for one in sink.standing(load.group, load.partitions).values())
    ]
