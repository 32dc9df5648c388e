"""What a load and its sink must agree on: said when the load is made, before anything is started.

A sink may say of itself what it cannot do, and how large a cycle it takes: see ``Sink``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import ConfigError
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.sinks.base import Sink, Tables
from millstream.spark.sinks.capabilities import (
    BoundsCycleBytes,
    BoundsCycleRecords,
    ChecksTables,
    SaysIfJoinsFiles,
    SaysIfReplaces,
    WritesTopics,
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user wants of a sink."""

    topics: Sequence[str]
    servers: str
    compact: bool


def check_fit(sink: Sink, pipeline: Pipeline, wishes: Wishes) -> None:
    """Raise ConfigError for what this kind of sink cannot do, without asking anybody."""
    if wishes.compact and isinstance(sink, SaysIfJoinsFiles) and not sink.joins_files:
        raise ConfigError(f"compact joins small files, and {sink.name} has none to join: leave it out")
    written = sink.written_topics(wishes.servers) if isinstance(sink, WritesTopics) else ()
    looped = set(wishes.topics) & set(written)
    if looped:
        raise ConfigError(
            f"{sink.name} would load {', '.join(sorted(looped))} into itself: choose another name for it"
        )
    if not pipeline.needs_spark_for_tables:
        check_tables(sink, pipeline.tables(None))


def check_tables(sink: Sink, tables: Tables) -> None:
    """The same for tables that are known."""
    if isinstance(sink, ChecksTables):
        sink.check(tables)


def check_query(sink: Sink, pipeline: Pipeline) -> None:
    """The same for a query, once Spark has said what it makes."""
    if pipeline.aggregates and isinstance(sink, SaysIfReplaces) and not sink.replaces:
        raise ConfigError(
            f"a query that aggregates cannot be loaded into {sink.name}, which cannot replace rows that were "
            "written before a crash: load into a table instead"
        )


def bounds_for(sink: Sink, bounds: Bounds) -> Bounds:
    """What the user has set, or what the sink takes at a time."""
    return bounds.or_else(
        sink.cycle_records if isinstance(sink, BoundsCycleRecords) else None,
        sink.cycle_bytes if isinstance(sink, BoundsCycleBytes) else None,
    )
