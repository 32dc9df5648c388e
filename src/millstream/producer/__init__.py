"""Sending records: ``Producer``.

A record's path: ``producer`` (the public class) serializes it and adds it to the open batch of its partition
(``core/batch``), or has ``intake`` open one, which may wait for metadata or memory. Rows of Arrow tables come
through ``arrow`` and ``arrow_columns`` into a ``core/column_batch``, encoded as they are added. On the I/O
thread, ``driver`` asks ``core/sender`` which batches go to which broker, has them encoded (in plain Python by
``core/records``, or by ``core/columns`` once the compiled encoder is loaded), sends them and reports outcomes
to ``futures``. ``core/sequences`` makes retries safe, ``core/partitioner`` chooses partitions.
"""

from __future__ import annotations

from millstream.producer.arrow_delivery import ArrowFuture
from millstream.producer.futures import RecordFuture
from millstream.producer.producer import Producer

__all__ = ["ArrowFuture", "Producer", "RecordFuture"]
