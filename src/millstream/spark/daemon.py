"""The process that Spark's Python workers are forked from, with what every worker needs loaded beforehand.

Set ``spark.python.daemon.module`` to this module. A worker then begins with pyarrow and the compiled decoder
in place, instead of loading them itself: a fraction of a second saved in each, and a tenth between tasks.
Java starts it; or a driver has, ahead of Java (``ahead``).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from typing import Final

from millstream.spark.runtime import prestart as ahead

_READS: Final = "pyspark.worker"
"""The module that tasks run in. Spark has others, which plan and read nothing."""


_LOADED: Final = (
    "pyspark.daemon",
    _READS,
    "pandas",  # pyarrow wants it for the first array that it makes of a list
    "millstream.spark.source.source",
    "millstream.spark.load.pipeline.fused",
    "millstream.spark.sinks.delta.output",
)


def preload() -> None:
    """Load what workers need. Nothing here may start a thread: it would be missing after the fork."""
    with contextlib.suppress(Exception):  # the worker finds out, and can say so
        from millstream.consumer.decoding.decoder import decoder
        from millstream.wire.records.decode import load

        for name in _LOADED:
            importlib.import_module(name)
        decoder.kernels = load()
    # A worker collects garbage after each task, before it takes the next: it need not look at all of this.
    gc.collect()
    gc.freeze()


def main(arguments: list[str]) -> None:
    """Fork workers until Java closes the standard input."""
    kept = None
    if arguments[:1] == [ahead.WORD]:
        preload()
        kept = ahead.take_over(int(arguments[1]), arguments[2])
        if kept is None:
            return
    elif arguments[:1] == [_READS]:
        if ahead.hand_over():
            return
        preload()
    from pyspark.daemon import manager

    with kept or contextlib.nullcontext():
        manager()


if __name__ == "__main__":
    main(sys.argv[1:])
