"""The consumer: public classes, the user's thread, the driver, and pure cores in packages of their own."""

from __future__ import annotations

from millstream.consumer.consumer import Consumer
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.listener import RebalanceListener

__all__ = ["Consumer", "RebalanceListener", "Record", "Records"]
