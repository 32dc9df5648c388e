"""A consumer's user, who polls, works, commits and dawdles; and with it the whole process."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from millstream.consumer.membership.phases import MemberPhase
from millstream.consumer.membership.values import Assigned, Lost, Revoke, Wait
from millstream.consumer.offsets.values import Offsets
from millstream.errors import BrokerError, FencedInstanceIdError, MillstreamError
from millstream.model import OffsetAndMetadata, TopicPartition
from tests.sim.cluster import Cluster
from tests.sim.driver import Driver, names
from tests.sim.habits import CommitMode, Habits
from tests.sim.network import Network

if TYPE_CHECKING:
    from tests.sim.invariants import Invariants
    from tests.sim.world import World

User = Generator[int, None, None]
"""The user's thread: yields for how long it sleeps; ``Member.wake`` may wake it before that."""


class Member(Driver):
    """One process. A restart is another ``Member`` with the same instance id."""

    def __init__(
        self,
        world: World,
        network: Network,
        cluster: Cluster,
        invariants: Invariants,
        habits: Habits,
        number: int,
    ) -> None:
        self._naps = 0
        super().__init__(world, network, cluster, invariants, habits, number)
        self.failure: MillstreamError | None = None
        self.stall_ms = 0
        """How long the user will be busy, on top of the usual, after the next poll."""
        self._view: set[TopicPartition] = set()
        self._user: User = self._live()
        world.later(0, self._step, 0)

    # ---- the user's thread ----

    def wake(self) -> None:
        """Wake the user if it sleeps where it can be woken."""
        if self._naps and self.is_alive:
            self.world.later(0, self._step, self._naps)

    def _step(self, nap: int) -> None:
        """Let the user go on, unless it has been woken before or is dead."""
        if nap != self._naps or not self.is_alive:
            return
        self._naps += 1
        delay_ms = next(self._user, None)
        if delay_ms is not None and self.is_alive:
            self.world.later(delay_ms, self._step, self._naps)

    def _sleep(self, delay_ms: int) -> User:
        """Be busy: nothing wakes the user."""
        end_ms = self.world.now_ms + delay_ms
        while self.world.now_ms < end_ms:
            yield end_ms - self.world.now_ms

    def _live(self) -> User:
        while not self.wants_to_close:
            yield from self._poll()
            if self.failure is not None:
                break
        if self.failure is None:
            yield from self._close()
        else:
            self.die()

    def _poll(self) -> User:
        """One poll() and the work that follows it."""
        self.membership.user_polled(self.world.now_ms, waiting=True)
        self.offsets.auto_commit_if_due(self._committable_offsets, self.world.now_ms)
        self.io()
        deadline_ms = self.world.now_ms + self.habits.poll_ms
        batch: dict[TopicPartition, int] = {}
        while not batch and self.failure is None:
            if self.error is not None:
                self._raise_error()
            elif self.callbacks:
                yield from self._run_callback()
            elif self.world.now_ms >= deadline_ms:
                break
            else:
                batch = self._take_batch()
                if not batch:
                    yield deadline_ms - self.world.now_ms
        self.membership.user_polled(self.world.now_ms)
        self.io()
        if self.failure is None:
            yield from self._work(batch)

    def _raise_error(self) -> None:
        assert self.error is not None
        error, self.error = self.error, None
        self.world.note(f"{self.name} is told: {error}")
        self.membership.error_raised(self.world.now_ms)
        if isinstance(error, FencedInstanceIdError):
            self.failure = error
        elif not (isinstance(error, BrokerError) and error.retriable):
            self.invariants.fail(f"{self.name} failed: {error!r}")

    def _take_batch(self) -> dict[TopicPartition, int]:
        """Hand out records: the positions after them."""
        batch: dict[TopicPartition, int] = {}
        for partition in sorted(self.held - self.revoking):
            start = self.positions.get(partition)
            if start is None:
                continue
            end = self.cluster.end_offset(partition)
            if not self.cluster.has_ended:
                end = min(end, start + self.world.rng.randint(5, 60))
            if end > start:
                self.invariants.delivered(self, partition, start, end)
                self.positions[partition] = batch[partition] = end
        return batch

    def _work(self, batch: dict[TopicPartition, int]) -> User:
        stall_ms = self.stall_ms
        if stall_ms:
            self.world.note(f"{self.name} stalls for {stall_ms} ms")
        yield from self._sleep(
            stall_ms + self.world.rng.randint(self.habits.work_ms // 3, self.habits.work_ms)
        )
        self.stall_ms = 0
        for partition, end in batch.items():
            self.invariants.processed(partition, end)
            # Lost, and perhaps assigned again, in the meantime: what was read before does not count.
            if self.positions.get(partition) == end:
                self.committable[partition] = OffsetAndMetadata(end, leader_epoch=0)
        if batch:
            yield from self._commit()

    def _commit(self) -> User:
        mode = self.habits.commits
        if mode is CommitMode.AUTO or not self.committable:
            return
        if mode is CommitMode.SYNC or (mode is CommitMode.BOTH and self.world.chance(0.1)):
            yield from self._commit_and_wait(dict(self.committable))
        else:
            self.offsets.commit_async(dict(self.committable), self.world.now_ms)
            self.io()

    def _commit_and_wait(self, offsets: Offsets) -> User:
        commit_id = self.offsets.commit(offsets, self.world.now_ms + 2_000)
        yield from self._await_commit(commit_id)

    def _await_commit(self, commit_id: int) -> User:
        self.awaited = commit_id
        self.io()
        while commit_id not in self.results:
            yield 10_000
        del self.results[commit_id]
        self.awaited = None

    def _committable_offsets(self) -> Offsets:
        return dict(self.committable)

    # ---- callbacks ----

    def _run_callback(self) -> User:
        event = self.callbacks.popleft()
        self.membership.user_polled(self.world.now_ms)
        if isinstance(event, Revoke):
            yield from self._on_revoked(event)
        elif isinstance(event, Lost):
            yield from self._on_lost(event)
        else:
            yield from self._on_assigned(event)
        self.membership.user_polled(self.world.now_ms, waiting=True)
        self.io()

    def _on_revoked(self, event: Revoke) -> User:
        partitions = set(event.partitions)
        if not partitions <= self._view:
            self.invariants.fail(f"{self.name} must give up {partitions} and has {self._view}")
        deadline_ms = self.world.now_ms + 2_000
        commit_id = self.offsets.auto_commit_now(self._committable_offsets, deadline_ms)
        if commit_id is not None:
            yield from self._await_commit(commit_id)
        elif self.habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
            going = {p: offset for p, offset in self.committable.items() if p in partitions}
            yield from self._commit_and_wait(going)
        yield from self._dawdle()
        self._view -= partitions
        self.let_go(event.partitions)
        self.revoking = frozenset()
        self.membership.callbacks_done(self.world.now_ms)

    def _on_lost(self, event: Lost) -> User:
        self.world.note(f"{self.name} has lost {names(event.partitions)}: {event.reason}")
        if set(event.partitions) != self._view:
            self.invariants.fail(f"{self.name} loses {event.partitions} and has {self._view}")
        yield from self._dawdle()
        self._view.clear()
        self.membership.callbacks_done(self.world.now_ms)

    def _on_assigned(self, event: Assigned) -> User:
        if self._view.intersection(event.added) or self._view.union(event.added) != set(event.partitions):
            self.invariants.fail(f"{self.name} has {self._view} and is assigned {event}")
        yield from self._dawdle()
        self._view = set(event.partitions)
        self.membership.callbacks_done(self.world.now_ms)
        if self.membership.assignment.issuperset(event.partitions):
            self.world.note(f"{self.name} takes {names(event.added)} in {event.generation_id}")
            self.invariants.handed_over(self, event.added, event.generation_id)
            self.held.update(event.added)
            self.offsets.partitions_assigned(self.world.now_ms)
            self.fetch_positions(event.added)

    def _dawdle(self) -> User:
        if self.world.chance(0.5):
            yield from self._sleep(self.world.rng.randint(1, 30))

    # ---- the end ----

    def _close(self) -> User:
        """Commit, give everything up, leave."""
        self.world.note(f"{self.name} closes")
        deadline_ms = self.world.now_ms + 3_000
        commit_id = self.offsets.auto_commit_now(self._committable_offsets, deadline_ms)
        if commit_id is None and self.habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
            commit_id = self.offsets.commit(dict(self.committable), deadline_ms)
        if commit_id is not None:
            yield from self._await_commit(commit_id)
        self.membership.close(self.world.now_ms, deadline_ms)
        self.io()
        while not self.membership.is_closed and self.world.now_ms < deadline_ms:
            if self.callbacks:
                yield from self._run_callback()
            else:
                yield min(50, deadline_ms - self.world.now_ms)
        self.die()

    def die(self) -> None:
        """End at once, without a word to anybody."""
        if not self.is_alive:
            return
        self.world.note(f"{self.name} ends")
        self.is_alive = False
        self.invariants.released(self, list(self.held))
        self.held.clear()
        if self._connection is not None:
            self._connection.break_off()

    # ---- questions ----

    @property
    def wanted_topics(self) -> tuple[str, ...]:
        """The topics that a member subscribes to once it has heard of all."""
        prefix = self.habits.pattern
        if prefix is None:
            return self.topics
        return tuple(topic for topic in self.cluster.topics if topic.startswith(prefix))

    @property
    def is_settled(self) -> bool:
        membership = self.membership
        return membership.phase is MemberPhase.STABLE and membership.waiting().what is Wait.NOTHING
