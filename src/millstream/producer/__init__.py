"""Sending records: ``Producer``.

A record's way: ``producer`` (the public class) serializes it and adds it to the open batch of its partition
(``accumulator``, ``batch``), or has ``intake`` open one, which may have to wait for metadata or memory. Rows
of Arrow tables come by ``arrow`` and ``arrow_columns`` and fill a ``block``, encoded as they come. On the I/O
thread, ``driver`` asks ``sender`` which batches go to which broker, has them encoded (``records`` in plain
Python, ``columns`` by compiled loops, once they are there: ``kernels``), sends them, and reports the outcome
to ``futures``. ``sequences`` makes repeating safe, ``partitioner`` chooses partitions.
"""

from __future__ import annotations

from millstream.producer.futures import RecordFuture
from millstream.producer.producer import Producer

__all__ = ["Producer", "RecordFuture"]
