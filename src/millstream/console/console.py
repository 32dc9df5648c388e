"""The console itself: one Admin, one sampler, and the answers made of what they know.

Its methods are what can be asked; ``api`` and ``pages`` put the same answers into JSON and HTML. All of them
run on the event loop, and whatever blocks is given to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from millstream.admin import Admin, ConfigEntry
from millstream.console import answers
from millstream.console.answers import Values
from millstream.console.loads import TableLook, loads_in, look_at_table, open_tables
from millstream.console.looking import CALL_SECONDS, Looker, Snapshot, TopicLook
from millstream.console.records import USUAL_RECORDS, Found, Ranges, from_offset, newest, read
from millstream.console.sampler import Sampler, View
from millstream.console.sharing import Shared
from millstream.console.views.charts import Chart, lag_chart
from millstream.errors import MillstreamError, MillstreamTimeoutError, NetworkError
from millstream.terminal.broker_check import require_broker

if TYPE_CHECKING:
    from millstream.spark.sinks.base import Sink

_CONFIGS_SECONDS: Final = 10.0
_TABLES_SECONDS: Final = 5.0
_RECORDS_SECONDS: Final = 60.0
"""How long records are kept: they are asked for by their offsets, so new ones are another question."""


class NothingKnownError(Exception):
    """The brokers have not answered yet; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a console is made from."""

    servers: str
    refresh_s: float = 2.0
    tables: Sequence[str] = ()
    client: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the Admin, under Kafka's names."""

    def for_clients(self) -> dict[str, object]:
        return {"client.id": "millstream-console", **self.client, "bootstrap.servers": self.servers}


@dataclass(frozen=True, slots=True)
class RecordsWanted:
    """Which records of a topic: the newest of all or of one partition, or some from an offset on."""

    partition: int | None = None
    offset: int | None = None
    count: int = USUAL_RECORDS


class Console:
    """Answers questions about one cluster. ``run`` must be running; ``close`` ends all."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._tables: list[Sink] = open_tables(settings.tables, {"bootstrap_servers": settings.servers})
        self._admin = Admin(settings.for_clients())
        self._brokers = _Brokers(self._admin, settings.servers)
        self.sampler = Sampler(self._brokers.look, settings.refresh_s)
        self._shared = Shared()

    async def run(self) -> None:
        """Sample while somebody looks, until cancelled. A first look at once: somebody will soon."""
        self.sampler.wake()
        await self.sampler.run()

    def close(self) -> None:
        """Let everybody go who waits for an answer."""
        self.sampler.close()
        self._shared.close()

    def disconnect(self) -> None:
        """Close the connections to the brokers."""
        self._admin.close(timeout=0)

    # -- the answers

    async def overview(self) -> Values:
        """Cluster, totals, topics, groups and loads."""
        view, snapshot = await self._look()
        return {
            **self.seen(view),
            "cluster": answers.cluster(snapshot, self.settings.servers),
            "totals": answers.totals(snapshot, view.rates),
            "topics": [answers.topic_row(topic, view.rates) for topic in snapshot.topics.values()],
            "groups": [answers.group_row(group, view.rates) for group in snapshot.groups.values()],
            "loads": await self._load_rows(snapshot),
        }

    async def topic(self, name: str) -> Values:
        """One topic, without its records."""
        view, snapshot = await self._look()
        topic = answers.find_topic(snapshot, name)
        configs = await self._configs(topic, view)
        return {**self.seen(view), **answers.topic_page(topic, snapshot, view.rates, configs)}

    async def records(self, name: str, wanted: RecordsWanted) -> Values:
        """Some records of a topic, the newest first."""
        _, snapshot = await self._look()
        topic = answers.find_topic(snapshot, name)
        if wanted.partition is not None:
            answers.find_partition(topic, wanted.partition)
        if wanted.partition is not None and wanted.offset is not None:
            ranges = from_offset(topic, wanted.partition, wanted.offset, wanted.count)
        else:
            ranges = newest(topic, wanted.count, wanted.partition)
        found, note = Found(()), ""
        try:
            found = await self._read(topic, ranges, wanted.count)
        except MillstreamError as error:
            note = f"the records could not be read: {error}"
        if not found.is_complete:
            note = "not all of them could be read in a few seconds: choose a partition, or fewer records"
        return {
            "topic": name,
            "partition": wanted.partition,
            "offset": wanted.offset,
            "count": wanted.count,
            "note": note,
            "records": [one.as_dict() for one in found.records],
        }

    async def group(self, name: str) -> Values:
        """One group, with the load that it is, if it is one."""
        view, snapshot = await self._look()
        group = answers.find_group(snapshot, name)
        now_ms = round(asyncio.get_running_loop().time() * 1000)
        page = answers.group_page(group, view.rates, self.sampler.points(name), now_ms)
        loads = [row for row in await self._load_rows(snapshot) if row["group"] == name]
        return {**self.seen(view), **page, "loads": loads}

    async def loads(self) -> Values:
        """All loads."""
        view, snapshot = await self._look()
        return {**self.seen(view), "loads": await self._load_rows(snapshot)}

    def chart(self, group: str, width: int, height: int) -> Chart | None:
        """A group's lag as a picture."""
        return lag_chart(self.sampler.points(group), gap_ms=self.sampler.gap_ms, width=width, height=height)

    def seen(self, view: View | None = None) -> Values:
        """How old an answer is, and what hinders a newer one."""
        view = self.sampler.current if view is None else view
        age_s = asyncio.get_running_loop().time() - view.taken_at_s
        return {
            "age_s": None if view.snapshot is None else round(max(0.0, age_s), 1),
            "trouble": view.trouble or None,
            "refresh_s": self.settings.refresh_s,
        }

    def health(self) -> Values:
        """Whether the last round reached the brokers, without asking them now."""
        view = self.sampler.current
        state = "unknown" if not view.rounds else "down" if view.trouble else "up"
        return {"status": "ok", "broker": state, "rounds": view.rounds, **self.seen(view)}

    # -- what they are made of

    async def _look(self) -> tuple[View, Snapshot]:
        view = await self.sampler.view()
        if view.snapshot is None:
            raise NothingKnownError(view.trouble or "The console is ending.")
        return view, view.snapshot

    async def _configs(self, topic: TopicLook, view: View) -> Mapping[str, ConfigEntry]:
        if view.trouble:
            return {}
        key = ("configs", topic.name, topic.topic_id)
        try:
            return await self._shared.get(
                key,
                lambda: self._admin.topic_configs(topic.name, timeout=CALL_SECONDS),
                keep_s=_CONFIGS_SECONDS,
            )
        except MillstreamError:  # a broker may keep them from us; the rest of the page is still of use
            return {}

    async def _read(self, topic: TopicLook, ranges: Ranges, count: int) -> Found:
        key = ("records", topic.topic_id, tuple(ranges.items()), count)
        settings = self.settings.for_clients()
        return await self._shared.get(key, lambda: read(settings, ranges, count), keep_s=_RECORDS_SECONDS)

    async def _load_rows(self, snapshot: Snapshot) -> list[Values]:
        loads = loads_in(snapshot)
        keep_s = max(self.settings.refresh_s, _TABLES_SECONDS)

        async def ask(sink: Sink) -> TableLook:
            return await self._shared.get(
                ("table", sink.name), lambda: look_at_table(self._admin, sink, loads), keep_s=keep_s
            )

        tables = await asyncio.gather(*(ask(sink) for sink in self._tables))
        return answers.load_rows(loads, tables, snapshot)


class _Brokers:
    """Looks at the brokers, and says in a sentence what to do when none answers."""

    def __init__(self, admin: Admin, servers: str) -> None:
        self._looker = Looker(admin)
        self._servers = servers
        self._were_there = False

    def look(self) -> Snapshot:
        if not self._were_there:
            require_broker(self._servers)  # a refused connection is told at once, a call would go on trying
        try:
            snapshot = self._looker.look()
        except (MillstreamTimeoutError, NetworkError):
            self._were_there = False
            require_broker(self._servers)
            raise
        self._were_there = True
        return snapshot
