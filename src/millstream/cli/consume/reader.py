"""``millstream consume`` at work: a consumer, where it starts, and when it has read enough."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

from millstream.cli.clients import client_settings
from millstream.cli.consume.rendering import Renderer
from millstream.cli.errors.names import require_topics
from millstream.cli.positions import AtOffset, AtTime, BeforeEnd, End, Position
from millstream.cli.progress import Meter, meter
from millstream.consumer import Consumer, RebalanceListener
from millstream.errors import CommitFailedError, RebalanceInProgressError, WakeupError
from millstream.model import TopicPartition
from millstream.terminal.outcome import DONE, CommandError

_POLL_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 5_000
_REBALANCE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end; never, where nothing is set."""

    maximum: int | None = None
    idle_seconds: float | None = None
    exit_at_end: bool = False


def read_alone(
    servers: str,
    properties: Mapping[str, str],
    topics: Sequence[str],
    partitions: Sequence[int],
    position: Position,
    limits: Limits,
    render: Renderer,
) -> int:
    """Print records of all partitions, or of those given, without a group. Returns the exit code."""
    defaults = {"auto.offset.reset": "earliest", "allow.auto.create.topics": "false"}
    with Consumer(client_settings(servers, properties, defaults)) as consumer:
        require_topics(topics, consumer.topics())
        assigned = _partitions(consumer, topics, partitions)
        consumer.assign(assigned)
        for partition, offset in _starts(consumer, assigned, position).items():
            consumer.seek(partition, offset)
        return _Reading(consumer, limits, render, commits=False).run(assigned)


def read_in_group(
    servers: str,
    properties: Mapping[str, str],
    topics: Sequence[str],
    group: str,
    position: End,
    limits: Limits,
    render: Renderer,
) -> int:
    """Print records as a member of a group, and commit what was printed. Returns the exit code."""
    defaults = {
        "group.id": group,
        "auto.offset.reset": position.value,
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
    }
    with Consumer(client_settings(servers, properties, defaults)) as consumer:
        require_topics(topics, consumer.topics())
        reading = _Reading(consumer, limits, render, commits=True)
        consumer.subscribe(topics, listener=reading)
        return reading.run()


def _partitions(consumer: Consumer, topics: Sequence[str], wanted: Sequence[int]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for topic in dict.fromkeys(topics):
        there = sorted(each.partition for each in consumer.partitions_for(topic))
        for partition in wanted or there:
            if partition not in there:
                raise CommandError(f"topic {topic!r} has the partitions 0 to {there[-1]}, not {partition}")
            found.append(TopicPartition(topic, partition))
    return found


def _starts(
    consumer: Consumer, partitions: Sequence[TopicPartition], position: Position
) -> dict[TopicPartition, int]:
    """The offset that a position stands for in each partition; the nearest where there is no such offset."""
    first = consumer.beginning_offsets(partitions)
    end = consumer.end_offsets(partitions)
    match position:
        case End.EARLIEST:
            return first
        case End.LATEST:
            return end
        case AtOffset(offset):
            return {each: min(max(first[each], offset), end[each]) for each in partitions}
        case BeforeEnd(count):
            return {each: max(first[each], end[each] - count) for each in partitions}
        case AtTime(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
            return {each: end[each] if (at := found[each]) is None else at.offset for each in partitions}


class _Reading(RebalanceListener):
    """One run of the command: polls, prints, commits, and knows when to end."""

    def __init__(self, consumer: Consumer, limits: Limits, render: Renderer, *, commits: bool) -> None:
        self._consumer = consumer
        self._limits = limits
        self._render = render
        self._commits = commits
        self._left = limits.maximum
        self._ending = False
        self._all_printed = True
        """False from the moment records are handed out until they are on standard output."""
        self._ends: dict[TopicPartition, int] | None = None
        """Where the assigned partitions ended when they were assigned; None before anything was."""

    def run(self, assigned: list[TopicPartition] | None = None) -> int:
        """Read until a limit is reached, or until Ctrl-C or SIGTERM; returns the exit code."""
        if assigned is not None:
            self.on_assigned(self._consumer, assigned)
        with _wakes_on_signals(self._consumer) as received:
            with suppress(WakeupError), meter("reading", None, wanted=not sys.stdout.isatty()) as progress:
                self._print_until_enough(progress)
            self._commit_at_end()
            return 128 + received[0] if received else DONE

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._ending:
            consumer.pause(*partitions)
        elif self._limits.exit_at_end:
            ends = consumer.end_offsets(partitions) if partitions else {}
            self._ends = (self._ends or {}) | ends

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with suppress(
            CommitFailedError, RebalanceInProgressError
        ):  # then they come again, to their next owner
            self._commit()
        self.on_lost(consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            (self._ends or {}).pop(partition, None)

    def _print_until_enough(self, progress: Meter) -> None:
        last_record_s = time.monotonic()
        printed = 0
        while self._left != 0 and not self._is_at_end():
            idle_s = time.monotonic() - last_record_s
            if self._limits.idle_seconds is not None and idle_s >= self._limits.idle_seconds:
                return
            if count := self._print_some(self._longest_wait(idle_s)):
                last_record_s = time.monotonic()
                printed += count
                progress(0, printed)

    def _print_some(self, timeout_s: float) -> int:
        """Poll once, print what comes, and commit it; returns how many records came."""
        most = _MOST_AT_ONCE if self._left is None else min(self._left, _MOST_AT_ONCE)
        records = self._consumer.poll(timeout=timeout_s, max_records=most)
        if not records:
            return 0
        self._all_printed = False
        out = sys.stdout.buffer
        for record in records:
            out.write(self._render(record))
        out.flush()
        self._all_printed = True
        if self._left is not None:
            self._left -= len(records)
        if self._commits:
            self._consumer.commit_async()
        return len(records)

    def _longest_wait(self, idle_s: float) -> float:
        if self._limits.idle_seconds is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, self._limits.idle_seconds - idle_s)

    def _is_at_end(self) -> bool:
        if self._ends is None:
            return False
        return all(self._consumer.position(partition) >= end for partition, end in self._ends.items())

    def _commit_at_end(self) -> None:
        """Commit for the last time. A rebalance may have to end first: take part in it, but read nothing."""
        self._ending = True
        deadline_s = time.monotonic() + _REBALANCE_SECONDS
        while True:
            try:
                self._commit()
                return
            except RebalanceInProgressError:
                if time.monotonic() > deadline_s:
                    raise
                self._consumer.pause(*self._consumer.assignment())
                self._consumer.poll(timeout=0.1)

    def _commit(self) -> None:
        """Commit what was printed: nothing when the last records were not, as they must come again."""
        if self._commits and self._all_printed:
            self._consumer.commit()


@contextmanager
def _wakes_on_signals(consumer: Consumer) -> Iterator[list[int]]:
    """Let Ctrl-C and SIGTERM end the poll in progress; a second Ctrl-C ends all. Yields the signals."""
    received: list[int] = []

    def wake(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        consumer.wakeup()

    before = {number: signal.signal(number, wake) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
