"""The process of one member of the demo's group: counts customers per country in a database.

It reads its orders as one line of JSON on standard input, and reports its partitions as lines of JSON on
standard output. On the end of standard input, or SIGTERM, it leaves the group and ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from millstream.consumer import Consumer, RebalanceListener
from millstream.demo.results import CountedRange, Results
from millstream.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    WakeupError,
)
from millstream.model import TopicPartition


class CountryCounter(RebalanceListener):
    """Counts customers per country. Positions come from the database, not from the group."""

    def __init__(self, consumer: Consumer, results: Results) -> None:
        self._consumer = consumer
        self._results = results

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        next_offsets = self._results.next_offsets()
        for partition in partitions:
            consumer.seek(partition, next_offsets[partition.partition])
        _report(consumer.assignment())

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        _report(consumer.assignment() - set(partitions))

    def count_some(self) -> int:
        """Poll once, and store counts and offsets in one transaction; returns how many were counted."""
        records = self._consumer.poll(timeout=0.2)
        if not records:
            return 0
        parts = records.by_partition()
        ranges = {
            each.partition: CountedRange(part[0].offset, part[-1].offset + 1) for each, part in parts.items()
        }
        if not self._results.add(Counter(record.value for record in records), ranges):
            self.on_assigned(self._consumer, list(parts))  # counted by another member: continue after it
            return 0
        self.commit()
        return len(records)

    def commit(self) -> None:
        """Commit for the sake of the group's lag; positions come from the database."""
        with suppress(CommitFailedError, RebalanceInProgressError, RetriableCommitFailedError):
            self._consumer.commit()


def main() -> int:
    """Run one member until it is stopped."""
    logging.basicConfig(level=logging.ERROR)
    order = json.loads(sys.stdin.buffer.readline())
    results = Results(Path(order["database"]))
    with Consumer(order["settings"], key_deserializer="string", value_deserializer="string") as consumer:
        _wake_up_at_end(consumer)
        counter = CountryCounter(consumer, results)
        consumer.subscribe([order["topic"]], listener=counter)
        with suppress(WakeupError):
            _count(counter, order)
        counter.commit()
    results.close()
    return 0


def _count(counter: CountryCounter, order: Mapping[str, Any]) -> None:
    """Count until woken up, at most at the rate of the order, so that the demo can be watched."""
    seconds_per_record = 1 / order["records_per_second"]
    while True:
        time.sleep(counter.count_some() * seconds_per_record)


def _wake_up_at_end(consumer: Consumer) -> None:
    def wait_for_end_of_input() -> None:
        os.read(sys.stdin.fileno(), 1)
        consumer.wakeup()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo handles Ctrl-C and stops its members
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    threading.Thread(target=wait_for_end_of_input, daemon=True).start()


def _report(partitions: Iterable[TopicPartition]) -> None:
    numbers = sorted(each.partition for each in partitions)
    sys.stdout.write(json.dumps({"assigned": numbers}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
