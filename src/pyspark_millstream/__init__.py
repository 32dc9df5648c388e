"""Lets Spark find ``format("millstream")`` by itself: it looks for DefaultSource in modules ``pyspark_…``."""

import pyspark

from millstream.spark.runtime.versions import is_supported

# An error here would hide the Python sources of other packages, too.
if is_supported(pyspark.__version__):
    from millstream.spark.source.source import MillstreamSource as DefaultSource

    __all__ = ["DefaultSource"]
