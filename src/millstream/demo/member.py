"""One member of the demo's group, as a process: reads customers, counts countries, keeps counts and offsets.

It is told what to do by one line of JSON on standard input, and reports its partitions as lines of JSON on
standard output. The end of standard input, or SIGTERM, ends it cleanly: it leaves the group at once.
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
from millstream.demo.results import OffsetRange, Results
from millstream.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    WakeupError,
)
from millstream.model import TopicPartition


class CountryCounter(RebalanceListener):
    """Counts customers per country. Where a partition begins is what the database says, not the group."""

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
        """Poll once, and put the counts and the offsets of what came into the database, together."""
        records = self._consumer.poll(timeout=0.2)
        if not records:
            return 0
        parts = records.by_partition()
        ranges = {
            each.partition: OffsetRange(part[0].offset, part[-1].offset + 1) for each, part in parts.items()
        }
        if not self._results.add(Counter(record.value for record in records), ranges):
            self.on_assigned(self._consumer, list(parts))  # another member was faster: go where it stands
            return 0
        self.commit()
        return len(records)

    def commit(self) -> None:
        """Tell the group, for those who watch its lag; the database alone decides where to go on."""
        with suppress(CommitFailedError, RebalanceInProgressError, RetriableCommitFailedError):
            self._consumer.commit()


def main() -> int:
    """Be a member until told to stop."""
    logging.basicConfig(level=logging.ERROR)
    order = json.loads(sys.stdin.buffer.readline())
    results = Results(Path(order["database"]))
    with Consumer(order["settings"], key_deserializer="string", value_deserializer="string") as consumer:
        _stop_when_told(consumer)
        counter = CountryCounter(consumer, results)
        consumer.subscribe([order["topic"]], listener=counter)
        with suppress(WakeupError):
            _count(counter, order)
        counter.commit()
    results.close()
    return 0


def _count(counter: CountryCounter, order: Mapping[str, Any]) -> None:
    """Count for ever, and not faster than asked: somebody is watching."""
    seconds_per_record = 1 / order["records_per_second"]
    while True:
        time.sleep(counter.count_some() * seconds_per_record)


def _stop_when_told(consumer: Consumer) -> None:
    def wait_for_end_of_input() -> None:
        os.read(sys.stdin.fileno(), 1)
        consumer.wakeup()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then stops its members
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    threading.Thread(target=wait_for_end_of_input, daemon=True).start()


def _report(partitions: Iterable[TopicPartition]) -> None:
    numbers = sorted(each.partition for each in partitions)
    sys.stdout.write(json.dumps({"assigned": numbers}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
