"""Keeps the cluster metadata fresh: on demand, by age, and with one request for many callers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from millstream.client.backoff import Backoff
from millstream.client.chance import chance
from millstream.client.cluster import Cluster
from millstream.config import ClientConfig
from millstream.errors import (
    Action,
    AuthenticationError,
    BrokerError,
    ClosedError,
    ErrorCode,
    MillstreamError,
    raise_for_code,
)
from millstream.net.reactor import Reactor, Timer
from millstream.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

log = logging.getLogger("millstream.client")

Done = Callable[[MillstreamError | None], None]
"""Called once metadata requested after the call have arrived, or with an error that a retry cannot cure."""


@dataclass(slots=True)
class _Refresh:
    """One call of ``refresh``: the topics (None: all), its callback, whether to create missing topics.

    ``can_wait``: nothing has happened, the metadata are only old.
    """

    topics: frozenset[str] | None
    done: Done | None
    create: bool
    can_wait: bool

    def covers(self, topics: frozenset[str] | None, create: bool, can_wait: bool) -> bool:
        """Whether the answer to this refresh also answers another."""
        if (create and not self.create) or (self.can_wait and not can_wait):
            return False
        return self.topics is None or (topics is not None and topics <= self.topics)


class Metadata:
    """The newest ``cluster``, and when to refresh it. Belongs to the I/O thread.

    Any thread may read ``cluster``, and nothing else. Tracked topics are refreshed when the metadata are
    older than metadata.max.age.ms, and as long as one of their partitions has no leader. ``send`` is
    ``Client.send`` to the least busy broker.
    """

    def __init__(
        self,
        reactor: Reactor,
        config: ClientConfig,
        send: Callable[..., None],
        on_update: Callable[[Cluster], None],
        *,
        auto_create_topics: bool,
        max_idle_ms: int | None = None,
    ) -> None:
        self.cluster = Cluster.empty()
        self.last_error: MillstreamError | None = None
        self._reactor = reactor
        self._send = send
        self._on_update = on_update
        self._auto_create_topics = auto_create_topics
        self._max_age_ms = config.metadata_max_age_ms
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._rebootstrap_after_ms = config.metadata_recovery_rebootstrap_trigger_ms
        self._max_idle_ms = max_idle_ms
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._tracked: dict[str, int] = {}
        self._tracks_all = False
        self._waiting: list[_Refresh] = []
        self._in_flight: list[_Refresh] | None = None
        self._ever_requested: set[str] = set()
        self._failures = 0
        self._unanswered_since_ms: int | None = None
        self._allowed_at_ms = 0
        self._all_recent_until_ms = 0
        self._timer: Timer | None = None
        self._age_timer: Timer | None = None

    # -- topics

    def track(self, topics: Iterable[str]) -> None:
        """Keep these topics fresh from now on; unknown ones are requested at once."""
        now_ms = self._reactor.now_ms()
        new = [topic for topic in topics if topic not in self._tracked]
        self._tracked.update(dict.fromkeys(topics, now_ms))
        missing = [topic for topic in new if topic not in self.cluster.topics]
        if missing:
            self.refresh(missing, create=True)

    def track_only(self, topics: Iterable[str]) -> None:
        """Replace the tracked topics."""
        wanted = frozenset(topics)
        self._tracks_all = False
        self._tracked = {topic: since for topic, since in self._tracked.items() if topic in wanted}
        self.track(wanted)

    def track_all(self, needed: Iterable[str] = ()) -> None:
        """Keep all topics fresh, including later ones. If a ``needed`` one is unknown, ask at once."""
        if not self._tracks_all or not self.cluster.topics.keys() >= set(needed):
            self._tracks_all = True
            self.refresh(None)

    def touch(self, topics: Iterable[str]) -> None:
        """These topics are in use: they expire metadata.max.idle.ms from now."""
        self._tracked.update(dict.fromkeys(topics, self._reactor.now_ms()))

    def refresh(
        self,
        topics: Iterable[str] | None = (),
        done: Done | None = None,
        *,
        create: bool = False,
        can_wait: bool = False,
    ) -> None:
        """Request metadata of ``topics`` (None: all), and call ``done``.

        Calls while a request is in flight, or too soon after the last, share the next one. With ``create``,
        the broker may create missing topics, if client and broker allow that: only for a waiting record, or a
        deleted topic would come back because it was used once. With ``can_wait``, the answer may come after
        that to a fetch which waits for data.
        """
        wanted = None if topics is None else frozenset(topics)
        pending = self._waiting + (self._in_flight or []) if self._is_unknown(wanted) else self._waiting
        if done is not None or not any(refresh.covers(wanted, create, can_wait) for refresh in pending):
            self._waiting.append(_Refresh(wanted, done, create, can_wait))
        self._plan()

    def refresh_recent(self, done: Done) -> None:
        """Call ``done`` once all topics are known as of now, or as of retry.backoff.ms before."""
        in_flight = self._in_flight or []
        if self._reactor.now_ms() >= self._all_recent_until_ms or self.last_error is not None:
            self.refresh(None, done)
        elif any(refresh.topics is None for refresh in in_flight):
            in_flight.append(_Refresh(None, done, create=False, can_wait=False))
        else:
            done(None)

    def _is_unknown(self, topics: frozenset[str] | None) -> bool:
        """Whether all topics are still unknown: then the answer to a request in flight will do."""
        return topics is not None and len(topics) > 0 and topics.isdisjoint(self.cluster.topics)

    def refresh_tracked(self, *, can_wait: bool = False) -> None:
        """Refresh all tracked topics, as metadata proved wrong or are old."""
        self.refresh(None if self._tracks_all else self._tracked, can_wait=can_wait)

    def learn(self, cluster: Cluster) -> None:
        """Take over newer metadata from another answer."""
        self.cluster = cluster
        self._on_update(cluster)

    def close(self, error: MillstreamError) -> None:
        """Stop refreshing, and call all waiting callbacks with ``error``."""
        for timer in (self._timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        waiting = [*self._waiting, *(self._in_flight or ())]
        self._waiting, self._in_flight = [], None
        _call_back(waiting, error)

    # -- requests

    def _plan(self) -> None:
        if self._in_flight is not None or not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reactor.now_ms() >= self._allowed_at_ms or self._is_urgent():
            self._request()
        else:
            self._timer = self._reactor.call_at(self._allowed_at_ms, self._plan)

    def _is_urgent(self) -> bool:
        """Whether a callback waits, or a topic is requested for the first time.

        Such a request needs no back-off after the last one, unless brokers do not answer.
        """
        if self.last_error is not None:
            return False
        return any(
            refresh.done is not None
            or (refresh.topics is not None and not refresh.topics <= self._ever_requested)
            for refresh in self._waiting
        )

    def _request(self) -> None:
        # Refreshes that may create topics go alone: otherwise a deleted topic of others would be recreated.
        creating = [refresh for refresh in self._waiting if refresh.create]
        self._in_flight = creating or self._waiting
        self._waiting = [refresh for refresh in self._waiting if not refresh.create] if creating else []
        topics: set[str] | None = set()
        for refresh in self._in_flight:
            topics = None if topics is None or refresh.topics is None else topics | refresh.topics
        self._ever_requested |= topics or set()
        now_ms = self._reactor.now_ms()
        self._allowed_at_ms = now_ms + self._backoff.delay_ms(1, chance())
        if topics is None:
            self._all_recent_until_ms = self._allowed_at_ms
        if self._unanswered_since_ms is None:
            self._unanswered_since_ms = now_ms
        requested = None if topics is None else frozenset(topics)
        create = self._auto_create_topics and any(refresh.create for refresh in self._in_flight)
        self._send(
            MetadataRequest,
            lambda version: self._build(requested, create),
            lambda response: self._answered(response, requested),
            self._failed,
            can_wait=all(refresh.can_wait for refresh in self._in_flight),
        )

    @staticmethod
    def _build(topics: frozenset[str] | None, create: bool) -> MetadataRequest:
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
        return MetadataRequest(topics=named, allow_auto_topic_creation=create)

    # -- answers

    def _answered(self, response: MetadataResponse, requested: frozenset[str] | None) -> None:
        try:
            raise_for_code(response.error_code, "metadata")
        except BrokerError as error:
            if error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._rebootstrap("a broker asked for it")
            self._failed(error)
            return
        done, self._in_flight = self._in_flight or [], None
        self.last_error = self._unanswered_since_ms = None
        self.cluster = self.cluster.updated(response, requested)
        self._drop_idle()
        self._watch_age()
        self._on_update(self.cluster)
        _call_back(done, None)
        self._follow_elections()

    def _failed(self, error: MillstreamError) -> None:
        self.last_error = error
        requested, self._in_flight = self._in_flight or [], None
        since_ms = self._unanswered_since_ms
        if since_ms is not None and self._reactor.now_ms() - since_ms >= self._rebootstrap_after_ms:
            self._rebootstrap(f"no metadata for {self._reactor.now_ms() - since_ms} ms")
        self._back_off()
        if isinstance(error, BrokerError) and error.retriable:
            log.debug("requesting metadata failed, will retry: %s", error)
            self._waiting = requested + self._waiting
        else:
            # A refusal is raised in the user's thread.
            is_told = isinstance(error, ClosedError | AuthenticationError)
            level = logging.DEBUG if is_told else logging.WARNING
            log.log(level, "requesting metadata failed: %s", error)
            _call_back(requested, error)
        self._plan()

    def _rebootstrap(self, reason: str) -> None:
        """Forget the brokers, so that the bootstrap servers are asked (KIP-899, KIP-1102)."""
        self._unanswered_since_ms = None
        if self._rebootstraps and self.cluster.brokers:
            log.info("starting again from bootstrap_servers: %s", reason)
            self.learn(replace(self.cluster, brokers={}))

    def _follow_elections(self) -> None:
        """Refresh, with growing back-off, while a tracked partition has no leader."""
        waiting = {found.topic for found in self.cluster.partitions_without_leader(self._tracked)}
        unsettled = {
            topic
            for topic, error in self.cluster.errors.items()
            if topic in self._tracked and error.action is not Action.ABORT
        }
        if waiting or unsettled:
            self._back_off()
            self.refresh(waiting | unsettled)
        else:
            self._failures = 0
            self._plan()

    def _back_off(self) -> None:
        self._failures += 1
        delay_ms = self._backoff.delay_ms(self._failures, chance())
        self._allowed_at_ms = self._reactor.now_ms() + delay_ms

    def _watch_age(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
        due_ms = self._reactor.now_ms() + max(1, self._max_age_ms)
        self._age_timer = self._reactor.call_at(due_ms, lambda: self.refresh_tracked(can_wait=True))

    def _drop_idle(self) -> None:
        if self._max_idle_ms is None:
            return
        oldest_ms = self._reactor.now_ms() - self._max_idle_ms
        idle = [topic for topic, used_ms in self._tracked.items() if used_ms < oldest_ms]
        if idle:
            for topic in idle:
                del self._tracked[topic]
            self._ever_requested.difference_update(idle)
            self.cluster = self.cluster.without_topics(idle)


def _call_back(pending: Iterable[_Refresh], error: MillstreamError | None) -> None:
    for refresh in pending:
        if refresh.done is not None:
            refresh.done(error)
