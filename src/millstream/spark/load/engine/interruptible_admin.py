"""Questions to brokers that a load waits for only as long as it shall go on.

Brokers that are away are waited for, up to ``default.api.timeout.ms``. Who ends a load then need not wait.
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
    """An Admin's questions; each raises StoppedError when the load shall end before the answer is there.

    The question is then left alone: nothing depends on what comes of it.
    """

    def __init__(self, admin: Admin, stop: StopRequest) -> None:
        self._admin = admin
        self._stop = stop

    def describe_topics(self, topics: list[str]) -> dict[str, TopicDescription]:
        return self._ask(lambda: self._admin.describe_topics(topics))

    def list_offsets(
        self, partitions: list[TopicPartition], spec: str, *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._ask(lambda: self._admin.list_offsets(partitions, spec, isolation_level=isolation_level))

    def group_offsets(
        self, group: str, partitions: list[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._ask(lambda: self._admin.group_offsets(group, partitions, timeout=timeout))

    def describe_log_dirs(self, *, timeout: float | None = None) -> list[LogDirDescription]:
        return self._ask(lambda: self._admin.describe_log_dirs(timeout=timeout))

    def _ask(self, question: Callable[[], T]) -> T:
        return BackgroundValue(question, "question").get(self._stop)
