"""Sinks as people type them: ``delta:DIR``, ``postgresql://…?table=NAME``, ``topic:NAME``."""

from __future__ import annotations

from millstream.errors import ConfigError
from millstream.spark.sinks.base import Sink

KINDS = "delta:DIR, postgresql://…?table=NAME or topic:NAME"


def sink_of(text: str, *, bootstrap_servers: str = "", target_file_size: int | None = None) -> Sink:
    """The sink that a text names; raises ConfigError. ``bootstrap_servers``: where a topic's brokers are."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise ConfigError(f"{text!r} names no sink: write {KINDS}")
    if kind == "delta":
        from millstream.spark.sinks.delta import DeltaSink

        return (
            DeltaSink(rest)
            if target_file_size is None
            else DeltaSink(rest, target_file_size=target_file_size)
        )
    if kind in ("postgresql", "postgres"):
        from millstream.spark.sinks.postgres import PostgresSink

        return PostgresSink(text)
    if kind == "topic":
        from millstream.spark.sinks.topic import TopicSink

        return TopicSink(rest, bootstrap_servers=bootstrap_servers)
    raise ConfigError(f"there is no sink of the kind {kind!r}: write {KINDS}")
