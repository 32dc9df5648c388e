"""ConsumerCores: membership, offsets and fetching, connected: what one core reports, another one gets.

What concerns the user is kept for the user's thread: callbacks to run, operations that have ended. All of it
is used under the driver's lock.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from millstream.client.client import Client
from millstream.client.cluster import Cluster
from millstream.client.connections import Channel
from millstream.client.targets import CoordinatorOf, Node
from millstream.config import ConsumerConfig
from millstream.consumer.assignors.base import ClusterView
from millstream.consumer.fetching import events as fetch_events
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.membership import values as member_events
from millstream.consumer.membership.core import Membership
from millstream.consumer.metrics import ConsumerMetrics
from millstream.consumer.offsets.core import OffsetStore
from millstream.consumer.offsets.values import CommitDone, CommittedFetched, Offsets
from millstream.consumer.sends import Send
from millstream.consumer.subscription import SubscriptionState
from millstream.errors import BrokerError, ErrorCode, MillstreamError, NetworkError

log = logging.getLogger("millstream.consumer")

_REFUSED = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

_COMMIT_ALL_MS = 600_000
"""How often automatic commits repeat offsets that have not changed. A group without members, as of assign(),
keeps an offset only for offsets.retention.minutes after its last commit."""


class ConsumerCore(Protocol):
    """What the three cores have in common."""

    def poll(self, now_ms: int) -> list[Send]: ...

    def next_wake_ms(self, now_ms: int) -> int | None: ...

    def receive(self, token: int, response: Any, now_ms: int) -> None: ...

    def failed(self, token: int, error: Exception, now_ms: int) -> None: ...


class Pending:
    """An operation that the user's thread waits for."""

    __slots__ = ("_error", "_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: Any = None
        self._error: Exception | None = None

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        self.is_done, self._result, self._error = True, result, error

    def outcome(self) -> Any:
        """The result of an operation that is done; raises its error."""
        if self._error is not None:
            raise self._error
        return self._result


class ConsumerCores:
    """The cores of one consumer; without a ``group_id`` there is neither membership nor offsets."""

    def __init__(
        self, client: Client, config: ConsumerConfig, epoch_at_zero_ms: int, chance: Callable[[], float]
    ) -> None:
        self._client = client
        self._config = config
        self.subscription = SubscriptionState(exclude_internal=config.exclude_internal_topics)
        self.fetcher = Fetcher(config, epoch_at_zero_ms=epoch_at_zero_ms, chance=chance)
        self.positions = self.fetcher.positions
        self.metrics = ConsumerMetrics(client.metrics, client.now_ms, self.fetcher)
        self.membership: Membership | None = None
        self.offsets: OffsetStore | None = None
        if config.group_id is not None:
            self.membership = Membership(config, chance)
            self.offsets = OffsetStore(config, self.membership, chance)
        self.callbacks: deque[member_events.CallbackEvent] = deque()
        """Rebalance events whose callbacks the user's thread must run."""
        self.async_commits: dict[int, Callable[..., None] | None] = {}
        """The callbacks of asynchronous commits in flight, by commit id."""
        self.finished_commits: deque[tuple[Callable[..., None], CommitDone]] = deque()
        """Asynchronous commits that have ended, whose callbacks the user's thread must run."""
        self.on_topics_refreshed: Callable[[MillstreamError | None], None] = lambda error: None
        """Called on the I/O thread, without the lock, when a pattern member knows the topics of now."""
        self.has_topic_error = False
        self._refused_topics: dict[str, BrokerError] = {}
        self._pending: dict[tuple[str, int], Pending] = {}
        self._committed_for: dict[int, int] = {}
        self._coordinator_id: int | None = None
        self._commit_all_at_ms = client.now_ms() + _COMMIT_ALL_MS

    def all(self) -> tuple[ConsumerCore, ...]:
        """The cores in the order in which to poll them."""
        # The membership after the offsets: a commit may tell it to look for the coordinator.
        group = () if self.offsets is None or self.membership is None else (self.offsets, self.membership)
        return (*group, self.fetcher)

    def node_id(self, send: Send) -> int | None:
        """The broker that a request is for; None for any."""
        if isinstance(send.target, Node):
            return send.target.node_id
        if not isinstance(send.target, CoordinatorOf):
            return None
        assert self.membership is not None and self.membership.coordinator is not None, "it was found"
        return self.membership.coordinator.node_id

    # --- topics

    def cluster_changed(self, cluster: Cluster, now_ms: int) -> None:
        """New metadata: leaders for the fetcher, topics for the subscription and the group."""
        self.fetcher.update_cluster(cluster)
        if self.subscription.update_topics(cluster):
            self.apply_subscription()
        if self.membership is not None:
            looked_up = {*cluster.topics, *cluster.errors}
            self.membership.update_cluster(_cluster_view(cluster), looked_up, now_ms)
        found = {topic: cluster.errors[topic] for topic in self.topics_read() if topic in cluster.errors}
        refused = {topic: error for topic, error in found.items() if error.code in _REFUSED}
        if any(self._refused_topics.get(topic) is not error for topic, error in refused.items()):
            self.has_topic_error = True
        self._refused_topics = refused

    def raise_topic_error(self) -> None:
        """Raise once for each response that refuses a topic; then ask again for the next call."""
        if not self.has_topic_error:
            return
        self.has_topic_error = False
        topics = sorted(self._refused_topics.keys() & self.topics_read())
        if topics:
            self._client.submit(lambda: self._client.metadata.refresh(topics))
            raise type(self._refused_topics[topics[0]])(f"topic {', '.join(topics)}")

    def apply_subscription(self) -> None:
        """Tell the group which topics are subscribed now, and keep their metadata fresh."""
        if self.membership is not None and self.subscription.is_by_group:
            self.membership.set_subscription(self.subscription.topics, accepts=self.subscription.accepts)
        self.track_topics()

    def track_topics(self) -> None:
        """Keep the metadata of all topics fresh that are read or watched."""
        topics = self.topics_read()
        if self.membership is not None:
            topics |= self.membership.watched_topics
        metadata = self._client.metadata
        self._client.submit(
            partial(metadata.track_all if self.subscription.pattern else metadata.track_only, topics)
        )
        self._client.wake()

    def topics_read(self) -> frozenset[str]:
        """The topics that are subscribed or assigned."""
        return self.subscription.topics | {each.topic for each in self.positions.assignment()}

    # --- operations

    def auto_commit_if_due(self, uncommitted: Callable[[], Offsets], now_ms: int) -> None:
        """Commit automatically if it is time: what is ``uncommitted``, and now and then all offsets."""
        if self.offsets is None:
            return
        if now_ms >= self._commit_all_at_ms:
            self._commit_all_at_ms = now_ms + _COMMIT_ALL_MS
            self.positions.forget_stored()
        self.offsets.auto_commit_if_due(uncommitted, now_ms)

    def expect(self, kind: str, number: int) -> Pending:
        """Wait for the event that ends operation ``number`` of this kind."""
        pending = self._pending[kind, number] = Pending()
        self._client.wake()
        return pending

    def _finish(self, kind: str, number: int, result: Any = None, error: Exception | None = None) -> None:
        pending = self._pending.pop((kind, number), None)
        if pending is not None:
            pending.finish(result, error)

    # --- events

    def handle_events(self, now_ms: int) -> bool:
        """Handle what the cores report; returns whether there was anything."""
        fetched = self.fetcher.take_events()
        for event in fetched:
            self._on_fetch_event(event, now_ms)
        group = self.handle_member_events()
        stored = self.offsets.take_events(now_ms) if self.offsets is not None else []
        for offset_event in stored:
            self._on_offset_event(offset_event, now_ms)
        return bool(fetched or group or stored)

    def handle_member_events(self) -> bool:
        """Handle what the membership reports, on any thread; returns whether there was anything."""
        events = self.membership.take_events() if self.membership is not None else []
        for event in events:
            self._on_member_event(event)
        return bool(events)

    def _on_fetch_event(self, event: fetch_events.FetchEvent, now_ms: int) -> None:
        match event:
            case fetch_events.MetadataNeeded(topics):
                self._client.metadata.refresh(topics)
            case fetch_events.CommittedNeeded(token, partitions):
                assert self.offsets is not None, "only a group has committed offsets"
                deadline_ms = now_ms + self._config.default_api_timeout_ms
                self._committed_for[self.offsets.fetch_committed(partitions, deadline_ms)] = token
            case fetch_events.NewLeaders(leaders, brokers):
                self._client.metadata.learn(self._client.cluster.with_leaders(leaders, brokers))
            case fetch_events.OffsetsFound(search, offsets):
                self._finish("search", search, offsets)
            case fetch_events.OffsetsNotFound(search, error):
                self._finish("search", search, error=error)
            case fetch_events.PositionLost(partition, offset, strategy):
                level = logging.INFO if offset is None else logging.WARNING
                log.log(level, "%s: no position (%s), resetting to %s", partition, offset, strategy.value)
            case fetch_events.PositionReset(partition, offset):
                log.info("%s: reads from offset %d", partition, offset)
            case fetch_events.LogTruncated(partition, offset, new_offset):
                log.warning("%s: the log was truncated: back from %d to %d", partition, offset, new_offset)

    def _on_member_event(self, event: member_events.Event) -> None:
        name = self._config.group_id
        match event:
            case member_events.Lost(_, reason, dropped):
                log.warning("group %s: lost %d partitions: %s", name, len(dropped), reason)
                self._lose(event)
            case member_events.Revoke() | member_events.Assigned():
                self.callbacks.append(event)
            case member_events.Failed(error):
                log.error("group %s: %s", name, error)
            case member_events.TopicsWatched() | member_events.TopicsNeeded():
                self._look_up_topics(event)
            case member_events.CoordinatorFound(node):
                log.info("group %s: its coordinator is broker %d", name, node.node_id)
                self._coordinator_id = node.node_id
            case member_events.CoordinatorLost(reason):
                log.info("group %s: lost its coordinator: %s", name, reason)
                self._drop_coordinator(reason)
            case member_events.JoinStarted(reason):
                log.info("group %s: joining (%s)", name, reason or "first time")
                self.metrics.rebalance_began()
            case member_events.Joined(generation_id, member_id, leads):
                role = "leader" if leads else "member"
                log.info("group %s: generation %d as %s %s", name, generation_id, role, member_id)
            case member_events.Left(reason):
                log.info("group %s: left (%s)", name, reason)

    def _look_up_topics(self, event: member_events.TopicsWatched | member_events.TopicsNeeded) -> None:
        if isinstance(event, member_events.TopicsWatched):
            self.track_topics()
        else:
            refresh = self._client.metadata.refresh_recent
            self._client.submit(partial(refresh, self.on_topics_refreshed))

    def _drop_coordinator(self, reason: str) -> None:
        """Close the connection, so that a commit on its way there cannot land after a newer one elsewhere."""
        node_id, self._coordinator_id = self._coordinator_id, None
        if node_id is not None:
            error = NetworkError(f"the coordinator was lost: {reason}")
            drop = partial(self._client.connections.drop, node_id, Channel.COORDINATOR, error)
            self._client.io.reactor.call_threadsafe(drop)  # this may be the user's thread

    def _lose(self, event: member_events.Lost) -> None:
        """Return no more records. As in Kafka, the assignment itself changes inside poll() only.

        Partitions that were about to be revoked can no longer be given up in order: they are lost, too.
        """
        for place, pending in enumerate(self.callbacks):
            if isinstance(pending, member_events.Revoke):
                self.callbacks[place] = member_events.Lost(pending.partitions, event.reason)
        self.callbacks.append(event)

    def _on_offset_event(self, event: CommitDone | CommittedFetched, now_ms: int) -> None:
        if isinstance(event, CommittedFetched):
            token = self._committed_for.pop(event.fetch_id, None)
            if token is None:
                self._finish("committed", event.fetch_id, event.offsets, event.error)
            elif event.error is not None:
                self.fetcher.failed(token, event.error, now_ms)
            else:
                self.fetcher.set_committed(token, event.offsets, now_ms)
            return
        self.positions.note_stored(event.offsets, certain=event.error is None)
        if event.commit_id in self.async_commits:
            callback = self.async_commits.pop(event.commit_id)
            if callback is not None:
                self.finished_commits.append((callback, event))
        elif event.automatic and event.error is not None:
            log.warning("group %s: an automatic commit failed: %s", self._config.group_id, event.error)
        self._finish("commit", event.commit_id, event.offsets, event.error)


def _cluster_view(cluster: Cluster) -> ClusterView:
    def racks(replicas: Iterable[int]) -> frozenset[str]:
        found = (cluster.brokers[node].rack for node in replicas if node in cluster.brokers)
        return frozenset(rack for rack in found if rack)

    return ClusterView(
        {
            name: tuple(racks(partition.replicas) for partition in topic.partitions)
            for name, topic in cluster.topics.items()
        }
    )
