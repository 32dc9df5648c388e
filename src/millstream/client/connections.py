"""The links of one client: to the brokers in its metadata, and to its bootstrap servers.

Answers come in order on a connection, so a fetch that waits for data delays every answer behind it.
Heartbeats and commits therefore have a channel of their own, even if the coordinator also leads partitions.
Other requests share the connection with fetches, and take a third one (``ASIDE``) only while a fetch is in
flight, as OffsetFetch does while a join is: most consumers never need it, and it is closed soon after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Final

from millstream.client.chance import chance
from millstream.client.cluster import BrokerInfo, Cluster
from millstream.client.link import Link, LinkOwner, LinkPhase, LinkSettings
from millstream.client.metrics import ClientMetrics
from millstream.errors import AuthenticationError, MillstreamError, NetworkError
from millstream.net.reactor import Reactor
from millstream.settings import Address


class Channel(Enum):
    """What a connection is for."""

    DATA = "data"
    COORDINATOR = "coordinator"
    ASIDE = "aside"
    """For requests that would wait behind a fetch or a join."""


ASIDE_IDLE_MS: Final = 30_000
"""When an idle ASIDE connection is closed, unless connections.max.idle.ms is less."""
_ASIDE_PAUSE_MS: Final = 60_000
"""How long none is tried after one failed: a broker may limit the number of connections."""


class Connections:
    """All links, by broker and channel. Belongs to the I/O thread."""

    def __init__(
        self,
        reactor: Reactor,
        bootstrap: Iterable[Address],
        settings: LinkSettings,
        metrics: ClientMetrics,
        owner: LinkOwner,
        *,
        rebootstraps: bool = True,
    ) -> None:
        """``rebootstraps``: whether bootstrap servers are asked again when no known broker can be reached."""
        self._reactor = reactor
        self._rebootstraps = rebootstraps
        self._settings = settings
        # -1 (never) stays the lesser of both.
        self._aside_settings = replace(settings, max_idle_ms=min(settings.max_idle_ms, ASIDE_IDLE_MS))
        self._metrics = metrics
        self._owner = owner
        self._brokers: dict[int, BrokerInfo] = {}
        self._links: dict[tuple[int, Channel], Link] = {}
        # Bootstrap servers have no node ids yet: they get negative ones.
        self._bootstrap = [
            self._new_link(BrokerInfo(-1 - index, address.host, address.port))
            for index, address in enumerate(bootstrap)
        ]

    def __iter__(self) -> Iterator[Link]:
        yield from self._links.values()
        yield from self._bootstrap

    def link(self, node_id: int, channel: Channel = Channel.DATA) -> Link:
        """The link to a broker; raises NetworkError if it is not in the metadata."""
        link = self._links.get((node_id, channel))
        if link is None:
            broker = self._brokers.get(node_id)
            if broker is None:
                raise NetworkError(f"broker {node_id} is not known: the metadata must be refreshed")
            link = self._links[node_id, channel] = self._new_link(broker, channel)
        return link

    def for_request(self, node_id: int) -> Link:
        """The link over which a broker answers soonest: not behind a fetch that may wait for data."""
        return self._past_fetches(self.link(node_id))

    def for_offset_fetch(self, node_id: int) -> Link:
        """The coordinator's link, unless a join may hold the answer there until all members have joined."""
        link = self.link(node_id, Channel.COORDINATOR)
        return self._aside(link) if link.requests.has_join else link

    def find(self, node_id: int, channel: Channel = Channel.DATA) -> Link | None:
        """The link to a broker if there is one already."""
        return self._links.get((node_id, channel))

    def least_loaded(self, *, can_wait: bool = False) -> Link:
        """The link for a request that any broker can answer: ready and least busy, else soonest ready.

        If no known broker can be reached, the bootstrap servers are tried again as well (KIP-899).
        ``can_wait``: the request is not worth another connection.
        """
        links = [self.link(node_id) for node_id in self._brokers]
        if not links or (self._rebootstraps and all(link.is_failing for link in links)):
            links += self._bootstrap
        links += [
            link
            for (_, channel), link in self._links.items()
            if channel is Channel.ASIDE and link.phase is LinkPhase.READY
        ]
        chosen = min(links, key=_preference)
        return chosen if can_wait else self._past_fetches(chosen)

    def learn(self, broker: BrokerInfo) -> None:
        """Add a broker, or its new address, from any answer that names one."""
        if self._brokers.get(broker.node_id) != broker:
            self._brokers[broker.node_id] = broker
            for channel in Channel:
                link = self._links.get((broker.node_id, channel))
                if link is not None:
                    link.move(broker)

    def update(self, cluster: Cluster) -> None:
        """Take over the brokers of new metadata; those that are gone or have moved lose their connections."""
        for node_id in [node_id for node_id in self._brokers if node_id not in cluster.brokers]:
            del self._brokers[node_id]
            for channel in Channel:
                gone = self._links.pop((node_id, channel), None)
                if gone is not None:
                    gone.close(NetworkError(f"{gone.broker} has left the cluster"))
        for broker in cluster.brokers.values():
            self.learn(broker)
            self._adopt_bootstrap(broker)

    def refusal(self) -> AuthenticationError | None:
        """Why a broker of the cluster does not let this client in, or none of the bootstrap servers does."""
        is_connected = any(link.phase is LinkPhase.READY for link in self)
        errors = [
            link.refused.error
            for link in self
            if link.refused.error is not None and (link.broker.node_id >= 0 or not is_connected)
        ]
        return errors[0] if errors else None

    def drop(self, node_id: int, channel: Channel, error: MillstreamError) -> None:
        """Close a link: its requests fail now, and no answer can arrive later."""
        link = self._links.pop((node_id, channel), None)
        if link is not None:
            link.close(error)

    def close(self, error: MillstreamError) -> None:
        for link in list(self):
            link.close(error)

    def _adopt_bootstrap(self, broker: BrokerInfo) -> None:
        """Make a bootstrap connection to the broker's own address the broker's connection."""
        if (broker.node_id, Channel.DATA) in self._links:
            return
        for index, link in enumerate(self._bootstrap):
            same = (link.broker.host, link.broker.port) == (broker.host, broker.port)
            if same and link.phase is LinkPhase.READY:
                self._bootstrap[index] = self._new_link(link.broker)
                link.broker = broker
                self._links[broker.node_id, Channel.DATA] = link
                return

    def _past_fetches(self, link: Link) -> Link:
        """This link, or the ASIDE one to the same broker while a fetch is in flight on it."""
        if link.phase is not LinkPhase.READY or not link.requests.has_fetch:
            return link
        return self._aside(link)

    def _aside(self, link: Link) -> Link:
        aside = self.link(link.broker.node_id, Channel.ASIDE)
        if aside.is_failing and self._reactor.now_ms() < aside.retry_at_ms + _ASIDE_PAUSE_MS:
            return link  # behind the other: late is better than never
        return aside

    def _new_link(self, broker: BrokerInfo, channel: Channel = Channel.DATA) -> Link:
        settings = self._aside_settings if channel is Channel.ASIDE else self._settings
        return Link(self._reactor, replace(broker), settings, self._metrics, self._owner)


_ORDER = {
    LinkPhase.READY: 0,
    LinkPhase.SETUP: 1,
    LinkPhase.CONNECTING: 2,
    LinkPhase.IDLE: 3,
    LinkPhase.BACKOFF: 4,
    LinkPhase.CLOSED: 5,
}


def _preference(link: Link) -> tuple[bool, int, bool, int, int, float]:
    """Sorts brokers that answer before failing ones; then by phase, fetches, back-off and load."""
    phase, requests = _ORDER[link.phase], link.requests
    return link.is_failing, phase, requests.has_fetch, link.retry_at_ms, len(requests), chance()
