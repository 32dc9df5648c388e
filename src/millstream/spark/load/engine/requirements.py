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


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a user wants of a sink."""

    topics: Sequence[str]
    servers: str
    compact: bool


def check_fit(sink: Sink, pipeline: Pipeline, wishes: Wishes) -> None:
    """Raise ConfigError for what this kind of sink cannot do, without asking anybody."""
    if wishes.compact and not getattr(sink, "joins_files", True):
        raise ConfigError(f"compact joins small files, and {sink.name} has none to join: leave it out")
    written = getattr(sink, "written_topics", None)
    looped = set(wishes.topics) & set(() if written is None else written(wishes.servers))
    if looped:
        raise ConfigError(
            f"{sink.name} would load {', '.join(sorted(looped))} into itself: choose another name for it"
        )
    if not pipeline.needs_spark_for_tables:
        check_tables(sink, pipeline.tables(None))


def check_tables(sink: Sink, tables: Tables) -> None:
    """The same for tables that are known."""
    check = getattr(sink, "check", None)
    if check is not None:
        check(tables)


def check_query(sink: Sink, pipeline: Pipeline) -> None:
    """The same for a query, once Spark has said what it makes."""
    if pipeline.aggregates and not getattr(sink, "replaces", True):
        raise ConfigError(
            f"a query that aggregates cannot be loaded into {sink.name}, which cannot replace rows that were "
            "written before a crash: load into a table instead"
        )


def bounds_for(sink: Sink, bounds: Bounds) -> Bounds:
    """What the user has set, or what the sink takes at a time."""
    return bounds.or_else(getattr(sink, "cycle_records", None), getattr(sink, "cycle_bytes", None))
