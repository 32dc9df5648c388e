"""The consumer: pure cores (membership, offsets, fetcher, assignors), their driver, the public classes."""

from __future__ import annotations

from millstream.consumer.consumer import Consumer
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.listener import RebalanceListener

__all__ = ["Consumer", "RebalanceListener", "Record", "Records"]
