"""Checks that a sink can do what a load needs of it, before anything is started.

A sink says what it cannot do, and how large a cycle may be, by its capabilities: see ``sinks.capabilities``.
"""

from __future__ import annotations

from typing import Any

from millstream.errors import ConfigError
from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import LoadSettings
from millstream.spark.sinks.base import Sink, Tables
from millstream.spark.sinks.capabilities import (
    BoundsCycleBytes,
    BoundsCycleRecords,
    ChecksTables,
    RemembersPartitions,
    SaysIfJoinsFiles,
    SaysIfReplaces,
    WritesTopics,
)


def check_fit(settings: LoadSettings, pipeline: Pipeline) -> None:
    """Raise ConfigError for what this kind of sink cannot do, before anything is connected."""
    sink = settings.sink
    if settings.compact and isinstance(sink, SaysIfJoinsFiles) and not sink.joins_files:
        raise ConfigError(
            f"compact joins small files, and {sink.name} has none to join: leave it out", setting="compact"
        )
    written = sink.written_topics(settings.servers) if isinstance(sink, WritesTopics) else ()
    looped = [topic for topic in written if settings.loads(topic)]
    if looped:
        raise ConfigError(
            f"{sink.name} would load {', '.join(sorted(looped))} into itself: choose another name for it"
        )
    if not pipeline.needs_spark_for_tables:
        check_tables(sink, pipeline.tables(None))


def tables_for(sink: Sink, pipeline: Pipeline, spark: Any) -> Tables:
    """The tables of a load into this sink: partitioned as an existing table is, unless the load says how.

    ``spark`` may be None unless ``pipeline.needs_spark_for_tables``.
    """
    remembered = sink.partitioned_by() if isinstance(sink, RemembersPartitions) else ()
    return pipeline.tables(spark, remembered)


def check_tables(sink: Sink, tables: Tables) -> None:
    """Raise ConfigError for tables that the sink cannot hold."""
    if isinstance(sink, ChecksTables):
        sink.check(tables)


def check_query(sink: Sink, pipeline: Pipeline) -> None:
    """Raise ConfigError for a query that the sink cannot take, once Spark has analysed it."""
    if pipeline.aggregates and isinstance(sink, SaysIfReplaces) and not sink.replaces:
        raise ConfigError(
            f"a query that aggregates cannot be loaded into {sink.name}, which cannot replace rows that were "
            "written before a crash: load into a table instead"
        )


def bounds_for(sink: Sink, bounds: Bounds) -> Bounds:
    """The bounds of a cycle that the user has set, or else those of the sink."""
    return bounds.or_else(
        sink.cycle_records if isinstance(sink, BoundsCycleRecords) else None,
        sink.cycle_bytes if isinstance(sink, BoundsCycleBytes) else None,
    )
