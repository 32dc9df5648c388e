"""millstream: Kafka's consumer system in Python, with an embedded broker.

The public names. Each is imported when it is first used, so that ``import millstream`` is fast; the
exceptions are in ``millstream.errors``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.admin import Admin
    from millstream.consumer import Consumer, RebalanceListener, Record, Records
    from millstream.consumer.aio import AsyncConsumer
    from millstream.embedded import EmbeddedBroker
    from millstream.model import (
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )
    from millstream.producer import Producer
    from millstream.scanning.scan import scan

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AsyncConsumer",
    "Consumer",
    "EmbeddedBroker",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "TimestampType",
    "TopicPartition",
    "__version__",
    "scan",
]

_HOMES = {
    "Admin": "millstream.admin",
    "AsyncConsumer": "millstream.consumer.aio",
    "Consumer": "millstream.consumer",
    "EmbeddedBroker": "millstream.embedded",
    "OffsetAndMetadata": "millstream.model",
    "OffsetAndTimestamp": "millstream.model",
    "Producer": "millstream.producer",
    "RebalanceListener": "millstream.consumer",
    "Record": "millstream.consumer",
    "RecordMetadata": "millstream.model",
    "Records": "millstream.consumer",
    "TimestampType": "millstream.model",
    "TopicPartition": "millstream.model",
    "scan": "millstream.scanning.scan",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
