"""The console's state: one Admin, one sampler, and what pages ask them for.

All methods run on the event loop; blocking calls are given to threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.admin import Admin, ConfigEntry
from millstream.console.background import SharedResults, on_a_thread
from millstream.console.cluster_snapshot import CALL_SECONDS, ClusterSnapshot, SampledTopic, SnapshotReader
from millstream.console.errors import NoDataError
from millstream.console.loads import TableStatus, load_rows, loads_in, open_tables, table_status
from millstream.console.records import Ranges, RecordsRead, read
from millstream.console.sampler import SampledView, Sampler
from millstream.console.views.charts import Chart, lag_chart
from millstream.errors import MillstreamError, MillstreamTimeoutError, NetworkError
from millstream.terminal.broker_check import require_broker

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink

_CONFIGS_SECONDS: Final = 10.0
_TABLES_SECONDS: Final = 5.0
_RECORDS_SECONDS: Final = 60.0
"""How long records are kept: they are keyed by their offsets, so new records have another key."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The brokers and tables that a console shows, and how often it polls."""

    servers: str
    refresh_s: float = 2.0
    tables: Sequence[str] = ()
    client: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the Admin, under Kafka's names."""

    def for_clients(self) -> dict[str, object]:
        return {"client.id": "millstream-console", **self.client, "bootstrap.servers": self.servers}


class Console:
    """What is known of one cluster. ``run`` must be running; ``close`` ends waiting requests."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        limit = {"default.api.timeout.ms": round(CALL_SECONDS * 1000)}
        brokers = {**settings.for_clients(), **limit}
        self._tables: list[Sink] = open_tables(settings.tables, brokers)
        self._admin = Admin(brokers)
        self._brokers = _Brokers(self._admin, settings.servers)
        self.sampler = Sampler(self._brokers.read_snapshot, settings.refresh_s)
        self._shared = SharedResults()

    async def run(self) -> None:
        """Sample while pages are viewed, until cancelled. The first round starts at once."""
        self.sampler.wake()
        await self.sampler.run()

    def close(self) -> None:
        """Release all requests that wait for an answer."""
        self.sampler.close()
        self._shared.close()

    def disconnect(self) -> None:
        """Close the connections to the brokers."""
        self._admin.close(timeout=0)

    async def view(self) -> tuple[SampledView, ClusterSnapshot]:
        """What is known now; raises NoDataError before the first answer of the brokers."""
        view = await self.sampler.view()
        if view.snapshot is None:
            raise NoDataError(view.trouble or "The console is ending.")
        return view, view.snapshot

    def freshness(self, view: SampledView | None = None) -> dict[str, Any]:
        """How old an answer is, and why there is no newer one."""
        view = self.sampler.current if view is None else view
        age_s = asyncio.get_running_loop().time() - view.taken_at_s
        return {
            "age_s": None if view.snapshot is None else round(max(0.0, age_s), 1),
            "trouble": view.trouble or None,
            "refresh_s": self.settings.refresh_s,
        }

    def chart(self, group: str, width: int, height: int) -> Chart | None:
        """The lag of a group over time."""
        return lag_chart(self.sampler.points(group), gap_ms=self.sampler.gap_ms, width=width, height=height)

    async def configs(self, topic: SampledTopic, view: SampledView) -> Mapping[str, ConfigEntry]:
        """The settings of a topic; empty where they cannot be read."""
        if view.trouble:
            return {}
        key = ("configs", topic.name, topic.topic_id)
        try:
            return await self._shared.get(
                key,
                lambda: self._admin.topic_configs(topic.name, timeout=CALL_SECONDS),
                keep_s=_CONFIGS_SECONDS,
            )
        except MillstreamError:  # such as a lack of permission: the rest of the page is still of use
            return {}

    async def records(self, topic: SampledTopic, ranges: Ranges, count: int) -> RecordsRead:
        """The newest ``count`` records of these ranges."""
        key = ("records", topic.topic_id, tuple(ranges.items()), count)
        settings = self.settings.for_clients()
        return await self._shared.get(key, lambda: read(settings, ranges, count), keep_s=_RECORDS_SECONDS)

    async def change(self, call: Callable[[Admin], object]) -> None:
        """Make a change. Raises MillstreamError."""
        await on_a_thread(lambda: call(self._admin), "millstream-console-change")

    async def load_rows(self, snapshot: ClusterSnapshot) -> list[dict[str, Any]]:
        """All loads, with the status of the tables that were named at the start."""
        loads = loads_in(snapshot)
        keep_s = max(self.settings.refresh_s, _TABLES_SECONDS)

        async def status(sink: Sink) -> TableStatus:
            return await self._shared.get(
                ("table", sink.name), lambda: table_status(self._admin, sink, loads), keep_s=keep_s
            )

        tables = await asyncio.gather(*(status(sink) for sink in self._tables))
        return load_rows(loads, tables, snapshot)


class _Brokers:
    """Reads snapshots. Its errors say what to do when no broker answers."""

    def __init__(self, admin: Admin, servers: str) -> None:
        self._reader = SnapshotReader(admin)
        self._servers = servers
        self._were_there = False

    def read_snapshot(self) -> ClusterSnapshot:
        if not self._were_there:
            require_broker(self._servers)  # fails at once where an Admin call would keep trying
        try:
            snapshot = self._reader.read()
        except (MillstreamTimeoutError, NetworkError):
            self._were_there = False
            require_broker(self._servers)
            raise
        self._were_there = True
        return snapshot
