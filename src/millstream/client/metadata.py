"""Keeping the picture of the cluster fresh: on demand, by age, and with one request for many askers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from millstream.client.backoff import Backoff
from millstream.client.chance import chance
from millstream.client.cluster import Cluster
from millstream.config import ClientConfig
from millstream.errors import Action, BrokerError, ClosedError, ErrorCode, MillstreamError, raise_for_code
from millstream.net.reactor import Reactor, Timer
from millstream.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.schema import Request

log = logging.getLogger("millstream.client")

Done = Callable[[MillstreamError | None], None]
"""Called when an answer came that was asked for later than this; with an error that repeating cannot cure."""


@dataclass(slots=True)
class _Ask:
    """One asker: the topics wanted (None: all there are), whom to tell, whether to make what is missing.

    ``can_wait``: nothing has happened, it is only time to look again.
    """

    topics: frozenset[str] | None
    done: Done | None
    create: bool
    can_wait: bool

    def covers(self, topics: frozenset[str] | None, create: bool, can_wait: bool) -> bool:
        """Whether the answer to this one will do for another."""
        if (create and not self.create) or (self.can_wait and not can_wait):
            return False
        return self.topics is None or (topics is not None and topics <= self.topics)


class MetadataSender(Protocol):
    """How a request reaches whichever broker is least busy."""

    def __call__(
        self,
        request_type: type[Request],
        build: Callable[[int], Request],
        on_response: Callable[[MetadataResponse], None],
        on_failure: Callable[[MillstreamError], None],
        *,
        can_wait: bool,
    ) -> None: ...


class Metadata:
    """The newest ``cluster``, and when to ask for a newer one. Belongs to the I/O thread.

    ``cluster`` alone may be read from any thread. Topics that are tracked are asked for again whenever the
    picture is older than metadata.max.age.ms, and as long as one of their partitions has no leader.
    """

    def __init__(
        self,
        reactor: Reactor,
        config: ClientConfig,
        send: MetadataSender,
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
        self._max_idle_ms = max_idle_ms
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._tracked: dict[str, int] = {}
        self._tracks_all = False
        self._asks: list[_Ask] = []
        self._asked: list[_Ask] | None = None
        self._ever_asked: set[str] = set()
        self._fruitless = 0
        self._allowed_at_ms = 0
        self._timer: Timer | None = None
        self._age_timer: Timer | None = None

    # -- what is wanted

    def track(self, topics: Iterable[str]) -> None:
        """Keep these topics fresh, from now on; those not known yet are asked for at once."""
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

    def track_all(self) -> None:
        """Keep all topics fresh, those included that come later."""
        if not self._tracks_all:
            self._tracks_all = True
            self.refresh(None)

    def touch(self, topics: Iterable[str]) -> None:
        """These topics are in use: they do not expire for metadata.max.idle.ms more."""
        self._tracked.update(dict.fromkeys(topics, self._reactor.now_ms()))

    def refresh(
        self,
        topics: Iterable[str] | None = (),
        done: Done | None = None,
        *,
        create: bool = False,
        can_wait: bool = False,
    ) -> None:
        """Ask again: for these topics (None: all there are), and for the tracked ones among the rest if due.

        Askers that come while a request is on its way, or too soon after the last, share the next one. With
        ``create``, the broker may make topics that are missing, if client and broker allow that: only where a
        record waits for one, or a deleted topic would come back because somebody once used it. What
        ``can_wait`` may be answered after a fetch that waits for data.
        """
        wanted = None if topics is None else frozenset(topics)
        asks = self._asks + (self._asked or []) if self._is_news(wanted) else self._asks
        if done is not None or not any(ask.covers(wanted, create, can_wait) for ask in asks):
            self._asks.append(_Ask(wanted, done, create, can_wait))
        self._plan()

    def _is_news(self, topics: frozenset[str] | None) -> bool:
        """Whether nothing is known of these topics yet: then nothing can have changed since they were asked
        for, and the answer that is on its way will do.
        """
        return topics is not None and len(topics) > 0 and topics.isdisjoint(self.cluster.topics)

    def refresh_tracked(self, *, can_wait: bool = False) -> None:
        """Something that was known turned out to be wrong: ask for all tracked topics again."""
        self.refresh(None if self._tracks_all else self._tracked, can_wait=can_wait)

    def learn(self, cluster: Cluster) -> None:
        """Take a newer picture that came with another answer."""
        self.cluster = cluster
        self._on_update(cluster)

    def close(self, error: MillstreamError) -> None:
        """Tell everybody who still waits."""
        for timer in (self._timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        waiting = [*self._asks, *(self._asked or ())]
        self._asks, self._asked = [], None
        _tell(waiting, error)

    # -- when to ask

    def _plan(self) -> None:
        if self._asked is not None or not self._asks:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reactor.now_ms() >= self._allowed_at_ms or self._is_urgent():
            self._ask()
        else:
            self._timer = self._reactor.call_at(self._allowed_at_ms, self._plan)

    def _is_urgent(self) -> bool:
        """Whether somebody waits for the answer, or asks for a topic for the first time.

        That need not keep its distance from the last request, unless brokers do not answer.
        """
        if self.last_error is not None:
            return False
        return any(
            ask.done is not None or (ask.topics is not None and not ask.topics <= self._ever_asked)
            for ask in self._asks
        )

    def _ask(self) -> None:
        # Those who may have topics made go alone, or a deleted topic that others ask for would be made again.
        creating = [ask for ask in self._asks if ask.create]
        self._asked = creating or self._asks
        self._asks = [ask for ask in self._asks if not ask.create] if creating else []
        topics: set[str] | None = set()
        for ask in self._asked:
            topics = None if topics is None or ask.topics is None else topics | ask.topics
        self._ever_asked |= topics or set()
        self._allowed_at_ms = self._reactor.now_ms() + self._backoff.delay_ms(1, chance())
        asked = None if topics is None else frozenset(topics)
        create = self._auto_create_topics and any(ask.create for ask in self._asked)
        self._send(
            MetadataRequest,
            lambda version: self._build(asked, create),
            lambda response: self._answered(response, asked),
            self._failed,
            can_wait=all(ask.can_wait for ask in self._asked),
        )

    @staticmethod
    def _build(topics: frozenset[str] | None, create: bool) -> MetadataRequest:
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
        return MetadataRequest(topics=named, allow_auto_topic_creation=create)

    # -- answers

    def _answered(self, response: MetadataResponse, asked: frozenset[str] | None) -> None:
        try:
            raise_for_code(response.error_code, "metadata")
        except BrokerError as error:
            if error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self.learn(replace(self.cluster, brokers={}))
            self._failed(error)
            return
        done, self._asked = self._asked or [], None
        self.last_error = None
        self.cluster = self.cluster.updated(response, asked)
        self._drop_idle()
        self._watch_age()
        self._on_update(self.cluster)
        _tell(done, None)
        self._follow_elections()

    def _failed(self, error: MillstreamError) -> None:
        self.last_error = error
        asked, self._asked = self._asked or [], None
        self._wait_longer()
        if isinstance(error, BrokerError) and error.retriable:
            log.debug("asking for metadata failed, it will be repeated: %s", error)
            self._asks = asked + self._asks
        else:
            level = logging.DEBUG if isinstance(error, ClosedError) else logging.WARNING
            log.log(level, "asking for metadata failed: %s", error)
            _tell(asked, error)
        self._plan()

    def _follow_elections(self) -> None:
        """Ask again while a tracked partition has no leader; less and less often."""
        waiting = {found.topic for found in self.cluster.partitions_without_leader(self._tracked)}
        unsettled = {
            topic
            for topic, error in self.cluster.errors.items()
            if topic in self._tracked and error.action is not Action.ABORT
        }
        if waiting or unsettled:
            self._wait_longer()
            self.refresh(waiting | unsettled)
        else:
            self._fruitless = 0
            self._plan()

    def _wait_longer(self) -> None:
        self._fruitless += 1
        delay_ms = self._backoff.delay_ms(self._fruitless, chance())
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
            self._ever_asked.difference_update(idle)
            self.cluster = self.cluster.without_topics(idle)


def _tell(asks: Iterable[_Ask], error: MillstreamError | None) -> None:
    for ask in asks:
        if ask.done is not None:
            ask.done(error)
