"""The parent process of Spark's Python workers, with what every worker needs imported before the fork.

Set ``spark.python.daemon.module`` to this module. A worker then starts with pyarrow and the compiled decoder
in place: that saves a fraction of a second in each, and a tenth between tasks. Java starts this process, or
the driver starts it before Java does (``runtime.prestart``).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from typing import Final

from millstream.spark.runtime import prestart

_TASKS: Final = "pyspark.worker"
"""The module that tasks run in. Spark's other worker modules plan, and read nothing."""


_PRELOADED: Final = (
    "pyspark.daemon",
    _TASKS,
    "pandas",  # pyarrow imports it for the first array made of a list
    "millstream.spark.source.source",
    "millstream.spark.load.pipeline.fused",
    "millstream.spark.sinks.delta.output",
)


def preload() -> None:
    """Import what workers need. Must not start a thread: it would be missing after the fork."""
    with contextlib.suppress(Exception):  # the worker fails in the same way, and reports it
        from millstream.consumer import compiled_decoder

        for name in _PRELOADED:
            importlib.import_module(name)
        compiled_decoder.background.load_now()
    # A worker collects garbage after each task: exempt all of this from it.
    gc.collect()
    gc.freeze()


def main(arguments: list[str]) -> None:
    """Fork workers until Java closes the standard input."""
    connection = None
    if arguments[:1] == [prestart.FLAG]:
        preload()
        connection = prestart.take_over(int(arguments[1]), arguments[2])
        if connection is None:
            return
    elif arguments[:1] == [_TASKS]:
        if prestart.hand_over():
            return
        preload()
    from pyspark.daemon import manager

    with connection or contextlib.nullcontext():
        manager()


if __name__ == "__main__":
    main(sys.argv[1:])
