"""Sending records: ``Producer``.

A record's way: ``producer`` (the public class) serializes it and adds it to a batch in ``accumulator``; on
the I/O thread, ``driver`` asks ``sender`` which batches go to which broker, encodes them (``batch``), sends
them, and reports the outcome to ``futures``. ``sequences`` makes repeating safe, ``partitioner`` chooses
partitions.
"""

from __future__ import annotations

from millstream.producer.futures import RecordFuture
from millstream.producer.producer import Producer

__all__ = ["Producer", "RecordFuture"]
