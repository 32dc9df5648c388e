"""The process that Spark's Python workers are forked from, with what every worker needs loaded beforehand.

Set ``spark.python.daemon.module`` to this module. A worker then begins with pyarrow and the compiled decoder
in place, instead of loading them itself: a fraction of a second saved in each, and a tenth between tasks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from typing import Final

_READS: Final = "pyspark.worker"
"""The module that tasks run in. Spark has others, which plan and read nothing."""


def preload() -> None:
    """Load what workers need. Nothing here may start a thread: it would be missing after the fork."""
    with contextlib.suppress(Exception):  # the worker finds out, and can say so
        from millstream.consumer.kernels import decoder
        from millstream.wire.decode import load

        importlib.import_module("pyarrow")
        importlib.import_module("millstream.spark.source")
        importlib.import_module(_READS)
        decoder.kernels = load()
    # A worker collects garbage after each task, before it takes the next: it need not look at all of this.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    if sys.argv[1:2] == [_READS]:
        preload()
    manager()
