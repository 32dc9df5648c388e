"""Lets Spark find ``format("millstream")`` by itself: it looks for DefaultSource in modules ``pyspark_…``."""

from millstream.spark.source.source import MillstreamSource as DefaultSource

__all__ = ["DefaultSource"]
