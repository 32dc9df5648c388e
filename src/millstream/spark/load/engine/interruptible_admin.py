"""An Admin whose calls end when the load is stopped.

Calls wait for unavailable brokers, up to ``default.api.timeout.ms``. A load that is stopped does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.admin import Admin, LogDirDescription, TopicDescription
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.spark.load.engine.background import BackgroundValue
from millstream.spark.load.engine.stopping import StopRequest

T = TypeVar("T")


class InterruptibleAdmin:
    """Calls of an Admin; each raises StoppedError if the load is stopped before it returns.

    The call then goes on in its thread, and its result is dropped.
    """

    def __init__(self, admin: Admin, stop: StopRequest) -> None:
        self._admin = admin
        self._stop = stop

    def list_topics(self) -> list[str]:
        return self._call(self._admin.list_topics)

    def describe_topics(self, topics: list[str]) -> dict[str, TopicDescription]:
        return self._call(lambda: self._admin.describe_topics(topics))

    def list_offsets(
        self, partitions: list[TopicPartition], spec: str, *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._call(lambda: self._admin.list_offsets(partitions, spec, isolation_level=isolation_level))

    def group_offsets(
        self, group: str, partitions: list[TopicPartition] | None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._call(lambda: self._admin.group_offsets(group, partitions, timeout=timeout))

    def describe_log_dirs(self, *, timeout: float | None = None) -> list[LogDirDescription]:
        return self._call(lambda: self._admin.describe_log_dirs(timeout=timeout))

    def _call(self, call: Callable[[], T]) -> T:
        return BackgroundValue(call, "admin").get(self._stop)
