"""Loads: topics into tables through Spark, exactly once.

``Load`` is imported when it is first used: tasks that import other parts of this package do not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.spark.load.load import Load as Load
    from millstream.spark.load.points import Detail as Detail
    from millstream.spark.load.points import Point as Point
    from millstream.spark.load.report import LoadReport as LoadReport

_HOMES = {"Load": "load", "LoadReport": "report", "Point": "points", "Detail": "points"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
