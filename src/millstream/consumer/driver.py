"""The consumer's side of the I/O thread: its three cores, driven together.

Membership, offsets and fetcher share one lock. The I/O thread holds it while it polls them and brings
answers; the user's thread holds it for a moment to look or to change something, and waits on it for news.
So a ``poll()`` that finds records needs no other thread at all. Decoding and the user's code run without it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from millstream.client.chance import between, chance
from millstream.client.client import Client
from millstream.client.cluster import Cluster
from millstream.client.connections import Channel
from millstream.config import ConsumerConfig
from millstream.consumer import membership
from millstream.consumer.assignors.base import ClusterView
from millstream.consumer.assignors.registry import resolve_assignors
from millstream.consumer.fetching import events as fetch_events
from millstream.consumer.fetching.fetcher import Fetcher
from millstream.consumer.fetching.settings import FetchSettings
from millstream.consumer.membership import GroupSettings, Membership
from millstream.consumer.offsets import CommitDone, CommittedFetched, OffsetSettings, OffsetStore
from millstream.consumer.sends import AnyNode, Coordinator, Node, Send, Target
from millstream.consumer.subscription import Subscription
from millstream.errors import BrokerError, ErrorCode, MillstreamError, NetworkError

log = logging.getLogger("millstream.consumer")

_REFUSED = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_ROUNDS = 20
"""How often the cores may answer each other before the loop has its turn: more would be a bug of ours."""


class _Core(Protocol):
    """What the three cores have in common."""

    def poll(self, now_ms: int) -> list[Send]: ...

    def next_wake_ms(self, now_ms: int) -> int | None: ...

    def receive(self, token: int, response: Any, now_ms: int) -> None: ...

    def failed(self, token: int, error: Exception, now_ms: int) -> None: ...


class ConsumerDriver:
    """A core of the client: polled on the I/O thread. Holds no reference to the Consumer itself."""

    def __init__(self, client: Client, config: ConsumerConfig) -> None:
        self.client = client
        self.config = config
        self.lock = threading.Condition(threading.RLock())
        self.subscription = Subscription(exclude_internal=config.exclude_internal_topics)
        epoch_at_zero_ms = time.time_ns() // 1_000_000 - client.now_ms()
        self.fetcher = Fetcher(
            FetchSettings.from_config(config), epoch_at_zero_ms=epoch_at_zero_ms, chance=chance
        )
        self.membership: Membership | None = None
        self.offsets: OffsetStore | None = None
        if config.group_id is not None:
            self.membership = Membership(_group_settings(config, config.group_id), _jitter)
            self.offsets = OffsetStore(_offset_settings(config, config.group_id), self.membership, _jitter)
        # For the user's thread: events whose callbacks it has to run, and what its calls wait for.
        self.callbacks: deque[membership.CallbackEvent] = deque()
        self.finished: dict[tuple[str, int], Any] = {}
        self.async_commits: dict[int, Callable[..., None] | None] = {}
        self.finished_commits: deque[tuple[Callable[..., None], CommitDone]] = deque()
        self._awaited: set[tuple[str, int]] = set()
        self._committed_for: dict[int, int] = {}
        self._coordinator_id: int | None = None
        self.has_topic_error = False
        self._refused_topics: dict[str, BrokerError] = {}

    # --- the core, on the I/O thread

    def poll(self, now_ms: int) -> None:
        """Send what is due, and let the cores answer each other until all are quiet."""
        with self.lock:
            for _ in range(_ROUNDS):
                self._send_due(now_ms)
                if not self.handle_events(now_ms):
                    break
            self.lock.notify_all()

    def next_wake_ms(self, now_ms: int) -> int | None:
        with self.lock:
            moments = [core.next_wake_ms(now_ms) for core in self._cores()]
        return min((moment for moment in moments if moment is not None), default=None)

    def cluster_changed(self, cluster: Cluster) -> None:
        """New metadata: leaders for the fetcher, topics for the subscription and the group."""
        with self.lock:
            self.fetcher.update_cluster(cluster)
            if self.subscription.update_topics(cluster):
                self.apply_subscription()
            if self.membership is not None:
                view = _cluster_view(cluster)
                looked_up = {*cluster.topics, *cluster.errors}
                self.membership.update_cluster(view, looked_up, self.client.now_ms())
            self._note_refused_topics(cluster)
            self.lock.notify_all()

    def _note_refused_topics(self, cluster: Cluster) -> None:
        """Topics that no waiting will bring: the user is told, once for each answer that says so."""
        found = {topic: cluster.errors[topic] for topic in self._topics_read() if topic in cluster.errors}
        refused = {topic: error for topic, error in found.items() if error.code in _REFUSED}
        if any(self._refused_topics.get(topic) is not error for topic, error in refused.items()):
            self.has_topic_error = True
        self._refused_topics = refused

    def _topics_read(self) -> frozenset[str]:
        return self.subscription.topics | {each.topic for each in self.fetcher.positions.assignment()}

    def _cores(self) -> tuple[_Core, ...]:
        # The membership after the offsets: a commit may tell it to look for the coordinator.
        group = () if self.offsets is None or self.membership is None else (self.offsets, self.membership)
        return (*group, self.fetcher)

    def _send_due(self, now_ms: int) -> None:
        for core in self._cores():
            for send in core.poll(now_ms):
                self._send(core, send)

    def _send(self, core: _Core, send: Send) -> None:
        self.client.send(
            self._node_id(send.target),
            send.request_type,
            send.build,
            partial(self._received, core, send.token),
            partial(self._failed, core, send.token),
            timeout_ms=send.timeout_ms,
            channel=Channel.COORDINATOR if isinstance(send.target, Coordinator) else Channel.DATA,
        )

    def _node_id(self, target: Target) -> int | None:
        if isinstance(target, Node):
            return target.node_id
        if isinstance(target, AnyNode):
            return None
        assert self.membership is not None and self.membership.coordinator is not None, "it was found"
        return self.membership.coordinator.node_id

    def _received(self, core: _Core, token: int, response: Any) -> None:
        with self.lock:
            core.receive(token, response, self.client.now_ms())
        self.client.poll_soon()

    def _failed(self, core: _Core, token: int, error: MillstreamError) -> None:
        with self.lock:
            core.failed(token, error, self.client.now_ms())
        self.client.poll_soon()

    # --- events

    def handle_events(self, now_ms: int) -> bool:
        """Deal with what the cores tell; returns whether there was anything."""
        fetched = self.fetcher.take_events()
        for event in fetched:
            self._on_fetch_event(event, now_ms)
        group = self.membership.take_events() if self.membership is not None else []
        for member_event in group:
            self._on_member_event(member_event)
        stored = self.offsets.take_events(now_ms) if self.offsets is not None else []
        for offset_event in stored:
            self._on_offset_event(offset_event, now_ms)
        return bool(fetched or group or stored)

    def _on_fetch_event(self, event: fetch_events.FetchEvent, now_ms: int) -> None:
        match event:
            case fetch_events.MetadataNeeded(topics):
                self.client.metadata.refresh(topics)
            case fetch_events.CommittedNeeded(token, partitions):
                assert self.offsets is not None, "only a group has committed offsets"
                deadline_ms = now_ms + self.config.default_api_timeout_ms
                self._committed_for[self.offsets.fetch_committed(partitions, deadline_ms)] = token
            case fetch_events.LeadersTold(leaders, brokers):
                self.client.metadata.learn(self.client.cluster.with_leaders(leaders, brokers))
            case fetch_events.OffsetsFound(search, _) | fetch_events.OffsetsNotFound(search, _):
                self._finish("search", search, event)
            case fetch_events.PositionLost(partition, offset, strategy):
                level = logging.INFO if offset is None else logging.WARNING
                log.log(level, "%s: no position (%s), resetting to %s", partition, offset, strategy.value)
            case fetch_events.PositionReset(partition, offset):
                log.info("%s: reads from offset %d", partition, offset)
            case fetch_events.LogTruncated(partition, offset, new_offset):
                log.warning("%s: the log was cut, back from %d to %d", partition, offset, new_offset)

    def _on_member_event(self, event: membership.Event) -> None:
        name = self.config.group_id
        match event:
            case membership.Lost(_, reason, dropped):
                log.warning("group %s: lost %d partitions: %s", name, len(dropped), reason)
                self._lose(event)
            case membership.Revoke() | membership.Assigned():
                self.callbacks.append(event)
            case membership.Failed(error):
                log.error("group %s: %s", name, error)
            case membership.TopicsWatched():
                self.track_topics()
            case membership.CoordinatorFound(node):
                log.info("group %s: its coordinator is broker %d", name, node.node_id)
                self._coordinator_id = node.node_id
            case membership.CoordinatorLost(reason):
                log.info("group %s: lost its coordinator: %s", name, reason)
                self._drop_coordinator(reason)
            case membership.Joining(reason):
                log.info("group %s: joining (%s)", name, reason or "first time")
            case membership.Joined(generation_id, member_id, leads):
                role = "leader" if leads else "member"
                log.info("group %s: generation %d as %s %s", name, generation_id, role, member_id)
            case membership.Left(reason):
                log.info("group %s: left (%s)", name, reason)

    def _drop_coordinator(self, reason: str) -> None:
        """Break the connection, so that a commit on its way there cannot land after a newer one elsewhere."""
        node_id, self._coordinator_id = self._coordinator_id, None
        if node_id is not None:
            error = NetworkError(f"the coordinator was lost: {reason}")
            drop = partial(self.client.connections.drop, node_id, Channel.COORDINATOR, error)
            self.client.io.reactor.call_threadsafe(drop)  # this may be the user's thread

    def _lose(self, event: membership.Lost) -> None:
        """Nothing more is handed out. As in Kafka, the assignment itself changes inside poll() only.

        What was to be revoked, and is not yet, cannot be given up in order any more: it is lost as well.
        """
        for place, pending in enumerate(self.callbacks):
            if isinstance(pending, membership.Revoke):
                self.callbacks[place] = membership.Lost(pending.partitions, event.reason)
        self.callbacks.append(event)

    def _on_offset_event(self, event: CommitDone | CommittedFetched, now_ms: int) -> None:
        if isinstance(event, CommittedFetched):
            token = self._committed_for.pop(event.fetch_id, None)
            if token is None:
                self._finish("committed", event.fetch_id, event)
            elif event.error is not None:
                self.fetcher.failed(token, event.error, now_ms)
            else:
                self.fetcher.set_committed(token, event.offsets, now_ms)
            return
        if event.commit_id in self.async_commits:
            callback = self.async_commits.pop(event.commit_id)
            if callback is not None:
                self.finished_commits.append((callback, event))
        elif event.automatic and event.error is not None:
            log.warning("group %s: an automatic commit failed: %s", self.config.group_id, event.error)
        self._finish("commit", event.commit_id, event)

    def _finish(self, kind: str, number: int, event: Any) -> None:
        if (kind, number) in self._awaited:
            self.finished[kind, number] = event

    # --- for the user's thread, with the lock held

    def start(self) -> None:
        """Take part in the client's loop."""

        def attach() -> None:
            self.client.on_metadata(self.cluster_changed)
            self.client.attach(self)

        self.client.submit(attach)

    def now_ms(self) -> int:
        return self.client.now_ms()

    def expect(self, kind: str, number: int) -> tuple[str, int]:
        """Keep the outcome of this operation until somebody takes it."""
        self._awaited.add((kind, number))
        self.client.wake()
        return kind, number

    def take_outcome(self, ticket: tuple[str, int]) -> Any | None:
        """The outcome, once; None while there is none."""
        event = self.finished.pop(ticket, None)
        if event is not None:
            self._awaited.discard(ticket)
        return event

    def forget_outcome(self, ticket: tuple[str, int]) -> None:
        self._awaited.discard(ticket)
        self.finished.pop(ticket, None)

    def raise_topic_error(self) -> None:
        """Tell the user of topics that cannot be read, and look whether they can be by the next call."""
        if not self.has_topic_error:
            return
        self.has_topic_error = False
        topics = sorted(self._refused_topics.keys() & self._topics_read())
        if topics:
            self.client.submit(lambda: self.client.metadata.refresh(topics))
            raise type(self._refused_topics[topics[0]])(f"topic {', '.join(topics)}")

    def apply_subscription(self) -> None:
        """Tell the group what is wanted now, and keep the metadata of it fresh."""
        if self.membership is not None and self.subscription.is_by_group:
            self.membership.set_subscription(self.subscription.topics, accepts=self.subscription.accepts)
        self.track_topics()

    def track_topics(self) -> None:
        """Have the metadata follow what is read and watched."""
        topics = self._topics_read()
        if self.membership is not None:
            topics |= self.membership.watched_topics
        track = self.client.metadata.track_all if self.subscription.pattern else None
        self.client.submit(track or partial(self.client.metadata.track_only, topics))
        self.client.wake()

    def end(self) -> list[Send]:
        """The last requests of the fetcher, which end its sessions."""
        return self.fetcher.close()

    def send_last(self, sends: Iterable[Send]) -> None:
        """Send without caring for the answers. On the I/O thread."""
        for send in sends:
            ignore: Callable[[Any], None] = lambda _: None  # noqa: E731 - nobody waits
            self.client.send(self._node_id(send.target), send.request_type, send.build, ignore, ignore)


def _jitter() -> float:
    return between(0.8, 1.2)


def _group_settings(config: ConsumerConfig, group_id: str) -> GroupSettings:
    return GroupSettings(
        group_id=group_id,
        assignors=resolve_assignors(config.partition_assignment_strategy),  # type: ignore[arg-type]
        group_instance_id=config.group_instance_id,
        rack_id=config.client_rack or None,
        session_timeout_ms=config.session_timeout_ms,
        # A rebalance waits that long for its members: beat often enough to hear of it in time.
        heartbeat_interval_ms=min(config.heartbeat_interval_ms, max(1, config.max_poll_interval_ms // 3)),
        max_poll_interval_ms=config.max_poll_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
    )


def _offset_settings(config: ConsumerConfig, group_id: str) -> OffsetSettings:
    return OffsetSettings(
        group_id=group_id,
        enable_auto_commit=config.enable_auto_commit,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        request_timeout_ms=config.request_timeout_ms,
        default_api_timeout_ms=config.default_api_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
    )


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
