"""ConsumerDriver: drives a consumer's cores over a client, and lets the user's thread at them.

The cores share one lock. The I/O thread holds it while it polls them and delivers responses. The user thread
takes it briefly to look or to change something, and waits on it for news. So a ``poll()`` that finds records
needs no other thread. Records are decoded, and the user's code runs, without the lock.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from millstream.client.chance import chance
from millstream.client.client import Client
from millstream.client.cluster import Cluster
from millstream.client.connections import Channel
from millstream.client.targets import CoordinatorOf
from millstream.config import ConsumerConfig
from millstream.consumer.core_guard import CoreGuard
from millstream.consumer.cores import ConsumerCore, ConsumerCores, Pending
from millstream.consumer.decoding.records import Records
from millstream.consumer.diagnosis import diagnose
from millstream.consumer.fetching.buffers import Chunk
from millstream.consumer.fetching.drain import Drained
from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Assigned, CallbackEvent, GroupMetadata, Lost
from millstream.consumer.offsets.core import OffsetStore
from millstream.consumer.offsets.values import CommitDone, Offsets
from millstream.consumer.sends import Send
from millstream.errors import MillstreamError
from millstream.model import TopicPartition

_ROUNDS = 20
"""How often the cores may answer each other in one poll; more would be a bug of ours."""


class ConsumerDriver:
    """The cores of one consumer, between the I/O thread and the user's thread.

    Time is the client's; ``wall_clock_ms`` is only for resets by timestamp, ``chance`` for back-offs. Holds
    no reference to the Consumer itself.
    """

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        *,
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        chance: Callable[[], float] = chance,
    ) -> None:
        self._client = client
        self._config = config
        self.lock = client.io.condition()
        """Held while the cores are used, and notified when something has changed."""
        self._cores = cores = ConsumerCores(client, config, wall_clock_ms() - client.now_ms(), chance)
        self.subscription = cores.subscription
        self.positions = cores.positions
        self.metrics = cores.metrics
        self.callbacks = cores.callbacks
        self.async_commits = cores.async_commits
        self.finished_commits = cores.finished_commits
        self._fetcher = cores.fetcher
        self._member = cores.membership
        self._offsets = cores.offsets
        self._after_poll = (0, 0)
        self.guard = CoreGuard(self.lock, config.group_id)
        cores.on_topics_refreshed = self._topics_refreshed

    # --- on the I/O thread

    def start(self) -> None:
        """Have the client poll this driver from now on."""

        def attach() -> None:
            self._client.on_metadata(self._cluster_changed)
            self._client.attach(self)

        self._client.submit(attach)

    def poll(self, now_ms: int) -> None:
        """Send what is due, and let the cores answer each other until all are quiet."""
        self.guard.run(self._poll_cores, now_ms)

    def _poll_cores(self, now_ms: int) -> None:
        for _ in range(_ROUNDS):
            for core in self._cores.all():
                for send in core.poll(now_ms):
                    self._send(core, send)
            if not self._cores.handle_events(now_ms):
                break
        self.lock.notify_all()

    def next_wake_ms(self, now_ms: int) -> int | None:
        moments = self.guard.run(lambda: [core.next_wake_ms(now_ms) for core in self._cores.all()])
        return min((moment for moment in moments or () if moment is not None), default=None)

    def _cluster_changed(self, cluster: Cluster) -> None:
        self.guard.run(self._cores.cluster_changed, cluster, self._client.now_ms())
        with self.lock:
            self.lock.notify_all()

    def _topics_refreshed(self, error: MillstreamError | None) -> None:
        """Let a pattern member join. After an error, which other calls raise, with the topics it knows."""
        if self._member is not None:
            self.guard.run(self._member.topics_refreshed)
            self._client.poll_soon()

    def _send(self, core: ConsumerCore, send: Send) -> None:
        self._client.send(
            self._cores.node_id(send),
            send.request_type,
            send.build,
            partial(self._received, core, send.token),
            partial(self._failed, core, send.token),
            timeout_ms=send.timeout_ms,
            channel=Channel.COORDINATOR if isinstance(send.target, CoordinatorOf) else Channel.DATA,
            max_version=send.max_version,
        )

    def _received(self, core: ConsumerCore, token: int, response: Any) -> None:
        self.guard.run(core.receive, token, response, self._client.now_ms())
        self._client.poll_soon()

    def _failed(self, core: ConsumerCore, token: int, error: MillstreamError) -> None:
        self.guard.run(core.failed, token, error, self._client.now_ms())
        self._client.poll_soon()

    # --- for the user's thread: what is read. From here on, each method takes the lock itself

    @property
    def has_group(self) -> bool:
        return self._member is not None

    @property
    def cluster(self) -> Cluster:
        return self._client.cluster

    def wake(self) -> None:
        """Have the cores polled soon."""
        self._client.wake()

    def subscribe(self, topics: Iterable[str] | None, pattern: re.Pattern[str] | None) -> None:
        """Read ``topics`` as a member of the group, or those that match ``pattern``."""
        with self.lock:
            if pattern is not None:
                self.subscription.choose_pattern(pattern, self.cluster)
            else:
                self.subscription.choose_topics(topics or ())
            self._cores.apply_subscription()

    def unsubscribe(self) -> None:
        """Leave the group, if it is in one. ``read`` nothing once the callbacks have run."""
        with self.lock:
            by_group = self.subscription.is_by_group
            self.subscription.clear()
            if by_group and self._member is not None:
                self._member.unsubscribe(self._client.now_ms())
                self._cores.handle_member_events()

    def request_rebalance(self, reason: str) -> None:
        """Rejoin the group in the next poll(), unless a rebalance is under way."""
        with self.lock:
            assert self._member is not None, "only a group rebalances"
            self._member.request_rejoin(reason)

    def read(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions from now on."""
        with self.lock:
            self.positions.assign(partitions)
            self._cores.track_topics()

    def read_chosen(self, partitions: Iterable[TopicPartition]) -> None:
        """As ``read``, for partitions that the user has chosen, and may seek before the group is asked."""
        with self.lock:
            self._fetcher.hold_committed()
            self.read(partitions)

    def find_positions(self) -> None:
        """Ask for committed offsets that no one has wanted until now."""
        with self.lock:
            if self._fetcher.release_committed():
                self.wake()

    # --- for the user's thread: polls

    def begin_poll(self, uncommitted: Callable[[], Offsets]) -> None:
        """The user is in poll(): commit what is ``uncommitted`` if an automatic commit is due."""
        with self.lock:
            now_ms = self._client.now_ms()
            self.metrics.poll_began(now_ms)
            self.user_polled(waiting=True)
            self.find_positions()
            self._cores.auto_commit_if_due(uncommitted, now_ms)

    def end_poll(self, entries: int) -> None:
        """The user leaves poll(), and has entered the consumer ``entries`` times so far.

        Wakes the I/O thread, unless all it could learn is that there was another poll: switching threads
        costs more than a poll. A stable member notices in time when it sends heartbeats, which are more
        frequent than max_poll_interval_ms.
        """
        with self.lock:
            self.metrics.poll_ended(self._client.now_ms())
            self.user_polled(waiting=False)
            is_quiet = self._is_quiet(entries)
        if not is_quiet:
            self._client.wake()

    def _is_quiet(self, entries: int) -> bool:
        """Whether nothing but this poll has happened since the one before."""
        commit_at_ms = self._offsets.auto_commit_at_ms if self._offsets is not None else 0
        expected, self._after_poll = self._after_poll, (entries + 1, commit_at_ms)
        member = self._member
        if member is not None and self.subscription.is_by_group and member.phase is not MemberPhase.STABLE:
            return False
        return expected == (entries, commit_at_ms) and not self._fetcher.wants_poll

    def user_polled(self, *, waiting: bool) -> None:
        """Tell the group that the user waits in poll(), or is busy elsewhere."""
        with self.lock:
            if self._member is not None and self.subscription.is_by_group:
                self._member.user_polled(self._client.now_ms(), waiting=waiting)

    def has_news(self) -> bool | None:
        """True when poll() has something to do; None otherwise."""
        with self.lock:
            failed = (self._member is not None and self._member.error is not None) or (
                self._cores.has_topic_error
            )
            failed = failed or self.guard.has_failed
            return bool(self.callbacks or self.finished_commits) or failed or self._fetcher.ready() or None

    def begin_take(self) -> list[Chunk]:
        """The data that may be drained, in order. Raises what the user must be told first."""
        with self.lock:
            self.guard.check()
            if self._member is not None and self._member.error is not None:
                error = self._member.error
                self.error_raised(error)
                raise error
            self.raise_partition_errors()
            return [] if self.callbacks else self._fetcher.begin_take()

    def finish_take(self, drained: Drained) -> Records:
        """Move the positions past what was drained, and return it."""
        with self.lock:
            self.guard.check()  # a core may have failed since they were drained
            if self.callbacks:  # a rebalance came in between: drop what was drained
                return Records()
            return self.metrics.counted(self._fetcher.finish_take(drained, self._client.now_ms()))

    def raise_partition_errors(self) -> None:
        """Raise what stops topics or partitions from being read."""
        with self.lock:
            self._cores.raise_topic_error()
            self._fetcher.raise_errors(self._client.now_ms())

    def error_raised(self, error: Exception) -> None:
        """The user was told of ``error``; if it is the group's, the member may try again."""
        with self.lock:
            if self._member is not None and self._member.error is error:
                self._member.error_raised(self._client.now_ms())

    # --- for the user's thread: rebalances

    def take_over(self, event: Assigned) -> None:
        """Read the partitions of a new assignment."""
        with self.lock:
            self.metrics.rebalance_ended()
            self.read(event.partitions)
            self._store.partitions_assigned(self._client.now_ms())

    def callback_done(self, event: CallbackEvent) -> None:
        """The callbacks of ``event`` have run: what it takes away is no longer read."""
        with self.lock:
            if not isinstance(event, Assigned):
                self.positions.revoke(event.partitions)
            if isinstance(event, Lost):
                self.positions.revoke(event.dropped)
            assert self._member is not None, "only a group rebalances"
            self._member.callbacks_done(self._client.now_ms())
            self._cores.handle_member_events()  # the next callback may follow, as for a member that leaves
        self._client.wake()

    def leave(self, timeout_ms: int) -> None:
        """Begin to leave the group for good."""
        if self._member is None:
            return
        with self.lock:
            now_ms = self._client.now_ms()
            self._member.close(now_ms, now_ms + timeout_ms)
            self._cores.handle_member_events()
        self._client.wake()

    @property
    def has_left(self) -> bool:
        return self._member is None or self._member.is_closed

    # --- for the user's thread: operations that brokers answer

    @property
    def _store(self) -> OffsetStore:
        assert self._offsets is not None, "only a group has committed offsets"
        return self._offsets

    def commit(self, offsets: Offsets, timeout_ms: int) -> Pending:
        with self.lock:
            return self._cores.expect("commit", self._store.commit(offsets, self._after(timeout_ms)))

    def commit_async(self, offsets: Offsets, callback: Callable[..., None] | None) -> None:
        with self.lock:
            if offsets:
                self.async_commits[self._store.commit_async(offsets, self._client.now_ms())] = callback
            elif callback is not None:
                self.finished_commits.append((callback, CommitDone(0, {}, None)))
        self._client.wake()

    def auto_commit(self, uncommitted: Callable[[], Offsets], timeout_ms: int) -> Pending | None:
        """Commit what is ``uncommitted`` if commits are automatic; None when there is nothing to wait for."""
        with self.lock:
            if self._offsets is None:
                return None
            number = self._offsets.auto_commit_now(uncommitted, self._after(timeout_ms))
            return None if number is None else self._cores.expect("commit", number)

    def fetch_committed(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> Pending:
        with self.lock:
            number = self._store.fetch_committed(partitions, self._after(timeout_ms))
            return self._cores.expect("committed", number)

    def find_offsets(self, timestamps: Mapping[TopicPartition, int], timeout_ms: int) -> Pending:
        with self.lock:
            number = self._fetcher.find_offsets(timestamps, self._after(timeout_ms))
            return self._cores.expect("search", number)

    def _after(self, timeout_ms: int) -> int:
        return self._client.now_ms() + timeout_ms

    def refresh_metadata(self, topics: list[str] | None) -> Pending:
        """Ask for these topics, or all; the answer is in ``cluster``."""
        pending = Pending()

        def finish(error: Exception | None) -> None:
            with self.lock:
                pending.finish(error=error)
                self.lock.notify_all()

        self._client.submit(lambda: self._client.metadata.refresh(topics, finish))
        return pending

    # --- for the user's thread: the rest

    def group_metadata(self) -> GroupMetadata | None:
        """This member's identity in its group; None without a group."""
        return None if self._member is None else self._member.metadata

    def diagnose(self) -> str:
        """Why the user gets no records, in words."""
        with self.lock:
            return diagnose(self._config, self._client, self._cores)

    def end(self) -> None:
        """Send LeaveGroup if it is due, and end the fetch sessions, without waiting for the answers."""
        with self.lock:
            sends = self._fetcher.close()
        self._client.submit(lambda: self._send_last(sends))

    def _send_last(self, sends: Iterable[Send]) -> None:
        if self._member is not None:
            for due in self.guard.run(self._member.poll, self._client.now_ms()) or ():
                self._send(self._member, due)
        for send in sends:
            ignore: Callable[[Any], None] = lambda _: None  # noqa: E731 - no one waits
            self._client.send(self._cores.node_id(send), send.request_type, send.build, ignore, ignore)
