"""The reading side of ``millstream consume``: where it starts, what it commits, and when it ends."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from millstream.cli.consume.options import ReadOptions
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


def print_records(
    client: Mapping[str, object],
    topics: Sequence[str],
    options: ReadOptions,
    position: Position,
    render: Renderer,
) -> int:
    """Print records until a limit or a signal; ``client`` are consumer settings. Returns the exit code."""
    with Consumer(client) as consumer:
        require_topics(topics, consumer.topics())
        loop = _PrintLoop(consumer, options, render)
        if options.group is not None:
            consumer.subscribe(topics, listener=loop)
            return loop.run()
        assigned = _partitions(consumer, topics, options.partitions)
        consumer.assign(assigned)
        for partition, offset in _starts(consumer, assigned, position).items():
            consumer.seek(partition, offset)
        return loop.run(assigned)


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
    """The offset of a position in each partition, or the nearest that the partition has."""
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


class _PrintLoop(RebalanceListener):
    """Polls, prints and commits until a limit is reached."""

    def __init__(self, consumer: Consumer, options: ReadOptions, render: Renderer) -> None:
        self._consumer = consumer
        self._limits = options
        self._render = render
        self._commits = options.group is not None
        self._left = options.maximum
        self._ending = False
        self._all_printed = True
        """False while polled records are not on standard output yet."""
        self._ends: dict[TopicPartition, int] | None = None
        """The end offsets of the partitions when they were assigned; None before the first assignment."""

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
        with suppress(CommitFailedError, RebalanceInProgressError):  # the next owner reads them again
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
        """Poll once, print and commit the records; returns how many there were."""
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
        """Commit for the last time. Take part in a rebalance that has to end first, but read nothing."""
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
        """Commit unless printing failed: records that were not printed must be read again."""
        if self._commits and self._all_printed:
            self._consumer.commit()


@contextmanager
def _wakes_on_signals(consumer: Consumer) -> Iterator[list[int]]:
    """End the poll on Ctrl-C or SIGTERM; a second Ctrl-C ends the command. Yields the received signals."""
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
