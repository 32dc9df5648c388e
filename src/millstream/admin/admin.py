"""The public Admin: all families of calls in one class."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from millstream.admin.cluster import ClusterAdmin
from millstream.admin.configs import ConfigAdmin
from millstream.admin.resets import ResetAdmin
from millstream.admin.topics import TopicAdmin
from millstream.config import AdminConfig


class Admin(TopicAdmin, ConfigAdmin, ResetAdmin, ClusterAdmin):
    """Looks after topics, groups and brokers. Any number of threads may share one; close it, or use ``with``.
    ::

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topic("customerCountries", partitions=3)
            print(admin.describe_group("CountryCounter").lag)

    Settings are those of Kafka's admin client, as keywords or as a mapping with Kafka's dotted names. Calls
    wait for their answer, at most ``default_api_timeout_ms`` or their own ``timeout`` in seconds, and repeat
    what may pass. What fails raises the error of the first item that failed, with its name and what to do;
    where several were asked for, the others were still carried out, and the error's ``failures`` has every
    error by item.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        super().__init__(AdminConfig.from_settings(settings, keywords))
        self._client.close_with(self)

    def metrics(self) -> dict[str, int | float]:
        """Counters: requests, bytes and latencies of the connections."""
        return self._client.metrics.snapshot()

    def close(self, timeout: float | None = 5.0) -> None:
        """End; calls in other threads fail with ClosedError. Closing again does nothing."""
        self._client.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
