"""A consumer's user: calls the real ``Consumer`` on a thread of its own, and checks what that promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from millstream.consumer.decoding.records import Records
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership.values import Lost
from millstream.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    InternalError,
    MillstreamTimeoutError,
    MisuseError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    WakeupError,
)
from millstream.model import TopicPartition
from tests.sim.actors import Actor
from tests.sim.habits import CommitMode, Fidget

if TYPE_CHECKING:
    from tests.sim.member import Member

_SLACK_MS: Final = 80
"""How much longer than its timeout a call may take: the thread pauses now and then."""
_NO_COORDINATOR_MS: Final = 15_000
"""How long close() may take without offsets to commit: it does not wait for a coordinator that is away."""
_LOOP: Final = 40
"""How many records an iteration takes before it begins again."""
_PASSING: Final = (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    MillstreamTimeoutError,
)
"""How a commit may fail for a user who goes on."""


class User(RebalanceListener):
    """One user: subscribes, polls or iterates, works, commits, fidgets, and closes."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._consumer = member.consumer
        self._habits = member.habits
        self._world = member.world
        self._invariants = member.invariants
        self.must_subscribe = True
        self.is_calm = False
        self.woken_ms: int | None = None
        """Since when a wakeup has not been heard."""
        self.view: set[TopicPartition] = set()
        """What the callbacks have given and not taken back."""
        self._seen: dict[TopicPartition, int] = {}
        """The offset after the last record that was seen of each partition, since it was assigned."""
        self._paused: set[TopicPartition] = set()
        self._called_ms = 0
        """How long callbacks have run altogether."""
        self._called_back_ms = 0
        """When the last one ended."""

    # ---- life ----

    def live(self) -> None:
        try:
            while not self._member.wants_to_close:
                self._round()
            self._close()
        except FencedInstanceIdError as error:
            self._fail_for_good(error)
        except InternalError as error:
            if not self._member.is_broken:
                self._invariants.fail(f"{self._member.name} failed: {error} {error.__cause__!r}")
            self._fail_for_good(error)

    def _fail_for_good(self, error: Any) -> None:
        self._world.note(f"{self._member.name} gives up: {error}")
        self._member.failure = error
        with suppress(FencedInstanceIdError, *_PASSING):
            self._consumer.close(0)

    def _round(self) -> None:
        try:
            if self.must_subscribe:
                self._subscribe()
            if self.is_calm and self._paused:
                self._resume()
            if self._habits.iterates:
                self._iterate()
            else:
                self._poll()
        except WakeupError:
            self._heard()
        except FencedInstanceIdError:
            raise
        except MisuseError:
            if not self.must_subscribe:  # else it has unsubscribed in a callback
                raise
        except BrokerError as error:
            if not error.retriable:
                self._invariants.fail(f"{self._member.name} failed: {error!r}")
        self._work(0 if self._member.stall_ms else None)

    def _subscribe(self) -> None:
        self.must_subscribe = False
        if self._habits.pattern is None:
            self._world.note(f"{self._member.name} subscribes to {', '.join(self._member.topics)}")
            self._consumer.subscribe(self._member.topics, listener=self)
        else:
            self._consumer.subscribe(pattern=f"{self._habits.pattern}.*", listener=self)

    def _close(self) -> None:
        member = self._member
        self._world.note(f"{member.name} closes within {self._habits.close_ms} ms")
        with suppress(WakeupError, *_PASSING):
            if self._habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
                self._commit_now(timeout_ms=2_000)
        member_id = member.membership.metadata.member_id
        # Beside a join that is parked, a LeaveGroup may need another connection, and time for that.
        has_time = self._habits.close_ms > 0 or member.is_settled
        is_auto = self._habits.commits is CommitMode.AUTO
        limit_ms = self._habits.close_ms if is_auto else min(self._habits.close_ms, _NO_COORDINATOR_MS)
        with suppress(WakeupError, *_PASSING), self._in_time("close", limit_ms):
            self._consumer.close(self._habits.close_ms / 1000)
        if self.view and not member.is_broken:
            self._invariants.fail(f"{member.name} has closed, and was not told that {self.view} are revoked")
        if self._habits.instance_id is None and has_time:
            self._invariants.has_left(member, member_id)

    # ---- promises ----

    @contextmanager
    def _in_time(self, what: str, timeout_ms: int) -> Iterator[None]:
        """The call ends in time, but for the time of callbacks, and hears a wakeup."""
        began_ms, called_ms, is_woken = self._world.now_ms, self._called_ms, self.woken_ms is not None
        yield
        now_ms = self._world.now_ms
        took_ms = now_ms - began_ms - (self._called_ms - called_ms)
        name = self._member.name
        if took_ms > timeout_ms + _SLACK_MS:
            self._invariants.fail(f"{name}: {what}({timeout_ms} ms) took {took_ms} ms")
        if what != "poll" or self.woken_ms is None:
            return
        if is_woken or now_ms - max(self.woken_ms, self._called_back_ms) > _SLACK_MS:
            self._invariants.fail(f"{name}: {what} does not hear the wakeup of {self.woken_ms}")

    def _heard(self) -> None:
        if self.woken_ms is None:
            self._invariants.fail(f"{self._member.name} was woken without a wakeup")
        self.woken_ms = None

    def _saw(self, partition: TopicPartition, start: int, end: int) -> None:
        """Records were returned: each once, in order, and none of a paused partition."""
        name = self._member.name
        if partition in self._paused:
            self._invariants.fail(f"{name} gets {partition}, which is paused")
        if partition not in self.view:
            self._invariants.fail(f"{name} gets {partition}, which it does not have")
        expected = self._seen.get(partition)
        if expected is None:
            self._invariants.begun(self._member, partition, start)
        elif start != expected:
            self._invariants.fail(f"{name} gets {partition} at {start}, and was at {expected}")
        self._seen[partition] = end

    # ---- reading ----

    def _poll(self) -> None:
        timeout_ms = 0 if self._world.chance(0.1) else self._habits.poll_ms
        with self._in_time("poll", timeout_ms):
            records = self._consumer.poll(timeout_ms / 1000)
        for part in records.columns:
            self._saw(part.topic_partition, int(part.offsets[0]), int(part.offsets[-1]) + 1)
        self._work()
        self._process(records)
        if records:
            self._commit()
        self._fidget()

    def _process(self, records: Records) -> None:
        for part in records.columns:
            self._invariants.processed(part.topic_partition, int(part.offsets[-1]) + 1)

    def _iterate(self) -> None:
        for number, record in enumerate(islice(self._consumer, _LOOP)):
            partition = record.topic_partition
            self._saw(partition, record.offset, record.offset + 1)
            self._invariants.processed(partition, record.offset + 1)
            is_last = self._consumer.lag(partition) == 0
            if self._member.wants_to_close or self.must_subscribe or self._member.stall_ms:
                break
            if is_last and (self.is_calm or self._world.chance(0.3)):
                self._commit()
            if self._world.chance(0.05):
                self._fidget()
            if number % 15 == 14:
                self._work()

    def _work(self, delay_ms: int | None = None) -> None:
        stall_ms = self._member.stall_ms
        if stall_ms:
            self._world.note(f"{self._member.name} stalls for {stall_ms} ms")
        if self.is_calm:
            delay_ms = 10
        elif delay_ms is None:
            delay_ms = self._world.rng.randint(self._habits.work_ms // 3, self._habits.work_ms)
        self._sleep(stall_ms + delay_ms)
        self._member.stall_ms = 0

    def _sleep(self, delay_ms: int) -> None:
        if delay_ms and Actor.current is not None:
            Actor.current.sleep(delay_ms)

    # ---- committing ----

    def _commit(self) -> None:
        mode = self._habits.commits
        if mode is CommitMode.AUTO:
            return
        if mode is CommitMode.SYNC or (mode is CommitMode.BOTH and self._world.chance(0.1)):
            with suppress(*_PASSING):
                self._commit_now(timeout_ms=2_000)
        else:
            self._consumer.commit_async()

    def _commit_now(self, timeout_ms: int) -> None:
        """commit() stores what was seen."""
        seen = dict(self._seen)
        with self._in_time("commit", timeout_ms + 1_000):
            self._consumer.commit(timeout=timeout_ms / 1000)
        for partition, offset in seen.items():
            stored = self._invariants.committed.get(partition)
            if partition in self._member.held and stored != offset:
                saw = f"{self._member.name} saw {partition} up to {offset}, and commit() returned"
                self._invariants.fail(f"{saw}: {stored} is stored")

    # ---- fidgeting ----

    def _fidget(self) -> None:
        if self.is_calm or not self._habits.fidgets or self._world.chance(0.7):
            return
        fidget = self._world.rng.choice(self._habits.fidgets)
        if fidget is Fidget.PAUSE and self._paused and self._world.chance(0.7):
            self._resume()
        elif fidget is Fidget.PAUSE:
            chosen = [each for each in sorted(self._consumer.assignment()) if self._world.chance(0.5)]
            self._consumer.pause(*chosen)
            self._paused.update(chosen)
        elif fidget is Fidget.SEEK:
            for partition in sorted(self._consumer.assignment()):
                if partition in self._seen and self._world.chance(0.5):
                    self._consumer.seek(partition, self._seen[partition])
        elif fidget is Fidget.LEAVE:
            self._leave()

    def _resume(self) -> None:
        self._consumer.resume(*sorted(self._paused & self._consumer.assignment()))
        self._paused.clear()

    def _leave(self) -> None:
        """Unsubscribe: all is revoked, and soon the group knows."""
        member = self._member
        member_id = member.membership.metadata.member_id
        self._world.note(f"{member.name} unsubscribes")
        self.must_subscribe = True
        self._consumer.unsubscribe()
        if self.view or self._consumer.assignment():
            self._invariants.fail(f"{member.name} has unsubscribed, and has {self.view}")
        if self._habits.instance_id is None:
            self._invariants.has_left(member, member_id)
        self._sleep(self._world.rng.choice((0, 5, 400)))

    # ---- callbacks ----

    @contextmanager
    def _callback(self) -> Iterator[None]:
        began_ms = self._world.now_ms
        if self._world.chance(0.5):
            self._sleep(self._world.rng.randint(1, 30))
        try:
            yield
        finally:
            self._called_back_ms = self._world.now_ms
            self._called_ms += self._world.now_ms - began_ms

    def on_assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        added, member = set(partitions), self._member
        if self.view & added or self.view | added != consumer.assignment():
            self._invariants.fail(f"{member.name} has {self.view} and is assigned {added}")
        for partition in partitions:
            self._seen.pop(partition, None)
        with self._callback():
            has_left = self._leave_in_callback()
            if Fidget.POSITION in self._habits.fidgets and not has_left:
                self._find_positions(partitions)
        self.view |= added
        if not any(isinstance(event, Lost) for event in member.driver.callbacks):
            generation = member.membership.metadata.generation_id
            self._world.note(f"{member.name} takes {' '.join(map(str, partitions))} in {generation}")
            self._invariants.handed_over(member, partitions, generation)
            member.held |= added

    def _find_positions(self, partitions: list[TopicPartition]) -> None:
        try:
            for partition in partitions:
                self._consumer.position(partition, timeout=0.2)
        except WakeupError:
            self._heard()
        except MillstreamTimeoutError:
            return

    def on_revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if not self.view.issuperset(partitions):
            self._invariants.fail(f"{self._member.name} must give up {partitions} and has {self.view}")
        is_stored = self._habits.commits is CommitMode.AUTO and self._habits.close_ms > 0
        try:
            with self._callback(), suppress(*_PASSING):
                if self._habits.commits in (CommitMode.SYNC, CommitMode.BOTH):
                    self._commit_now(timeout_ms=1_000)
                    is_stored = True
                self._leave_in_callback()
        finally:
            self._take_back(partitions, is_stored=is_stored)
            self._member.let_go(partitions)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._world.note(f"{self._member.name} has lost {' '.join(map(str, partitions))}")
        if not self.view.issuperset(partitions):
            self._invariants.fail(f"{self._member.name} loses {partitions} and has {self.view}")
        with self._callback():
            self._take_back(partitions, is_stored=False)

    def _take_back(self, partitions: list[TopicPartition], *, is_stored: bool) -> None:
        for partition in partitions:
            self.view.discard(partition)
            self._paused.discard(partition)
            seen = self._seen.pop(partition, None)
            self._invariants.stopped(partition, seen if is_stored else None)

    def _leave_in_callback(self) -> bool:
        if self.is_calm or Fidget.LEAVE_IN_CALLBACKS not in self._habits.fidgets or self._world.chance(0.85):
            return False
        self._world.note(f"{self._member.name} unsubscribes in a callback")
        self._consumer.unsubscribe()
        self.must_subscribe = True
        if self._world.chance(0.5):
            self._subscribe()
        return True
