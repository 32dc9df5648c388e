"""What a run of a load works with, from the load's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.spark.load.decisions.cycles import Bounds
from millstream.spark.load.engine.retries import SECONDS_ONCE
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.points import Observer, ignore
from millstream.spark.sinks.base import Sink


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run works with, from the settings of its load."""

    group_id: str
    sink: Sink
    pipeline: Pipeline
    task_settings: Mapping[str, object]
    bounds: Bounds
    observer: Observer = ignore
    watched: bool = False
    compact_bytes: int | None = None
    read_committed: bool = False
    retry_seconds: float = SECONDS_ONCE
    """How long transient failures are retried."""
