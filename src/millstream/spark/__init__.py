"""millstream on Spark: the source ``format("millstream")``, and loads that are members of a consumer group.

The public names, each imported when it is first used: Spark is large, and tasks need little of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from millstream.extras import require
from millstream.spark.runtime.versions import check_version

if TYPE_CHECKING:
    from millstream.spark.load import Load
    from millstream.spark.runtime.java import ensure_java
    from millstream.spark.runtime.session import session
    from millstream.spark.runtime.shipping import ship
    from millstream.spark.sinks.delta.per_topic import DeltaTopicsSink
    from millstream.spark.sinks.delta.sink import DeltaSink
    from millstream.spark.sinks.postgres.sink import PostgresSink
    from millstream.spark.sinks.topic.sink import TopicSink
    from millstream.spark.source.source import register

__all__ = [
    "DeltaSink",
    "DeltaTopicsSink",
    "Load",
    "PostgresSink",
    "TopicSink",
    "ensure_java",
    "register",
    "session",
    "ship",
]

_HOMES = {
    "DeltaSink": "millstream.spark.sinks.delta.sink",
    "DeltaTopicsSink": "millstream.spark.sinks.delta.per_topic",
    "Load": "millstream.spark.load",
    "PostgresSink": "millstream.spark.sinks.postgres.sink",
    "TopicSink": "millstream.spark.sinks.topic.sink",
    "ensure_java": "millstream.spark.runtime.java",
    "register": "millstream.spark.source.source",
    "session": "millstream.spark.runtime.session",
    "ship": "millstream.spark.runtime.shipping",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_version(require("pyspark", "spark").__version__)
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
