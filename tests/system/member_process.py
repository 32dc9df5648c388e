"""A consumer in a process of its own: orders come in as JSON lines, reports go out as JSON lines.

The first line has ``settings``, ``topics`` and ``polling`` (poll all the time, rather than when told so).
Then each line is an order, ``{"do": name, ...}``, and is answered by one line with ``value`` or ``error``. In
between come reports: callbacks (``what``), and after each poll by itself ``records`` and what is ``owned``.
SIGTERM wakes the consumer up, which then leaves the group. Without a parent it ends at once.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from millstream.consumer import Consumer, RebalanceListener, Record
from millstream.errors import MillstreamError, WakeupError
from millstream.model import TopicPartition

POLL_SECONDS = 0.05


def report(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Reporter(RebalanceListener):
    """Reports each callback."""

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._report("assigned", consumer, partitions)

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._report("revoked", consumer, partitions)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._report("lost", consumer, partitions)

    @staticmethod
    def _report(what: str, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        generation = consumer.group_metadata().generation_id
        report(what=what, partitions=sorted(partitions), generation=generation, at=time.monotonic())


class Orders:
    """What a member can be told to do, by name."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._outcomes: list[list[object]] = []

    def read(self, count: int) -> list[tuple[str, int, int]]:
        """Poll until exactly so many more records are there."""
        records: list[Record] = []
        while len(records) < count:
            records += self._consumer.poll(POLL_SECONDS, max_records=count - len(records))
        return places(records)

    def idle(self, seconds: float) -> float:
        """Wait in one poll, for records that do not come; returns the CPU seconds that it took."""
        before = time.process_time()
        records = self._consumer.poll(seconds)
        assert not records, records
        return time.process_time() - before

    def commit(self, offsets: dict[str, int] | None = None) -> None:
        self._consumer.commit(None if offsets is None else named(offsets))

    def commit_async(self, offsets: dict[str, int] | None = None) -> None:
        self._consumer.commit_async(None if offsets is None else named(offsets), self._told)

    def outcomes(self, count: int) -> list[list[object]]:
        """What the callbacks of asynchronous commits were told, once there are so many."""
        while len(self._outcomes) < count:
            self._consumer.commit_async({})
            time.sleep(POLL_SECONDS)
        return self._outcomes

    def _told(self, offsets: dict[TopicPartition, Any], error: Exception | None) -> None:
        total = sum(each.offset for each in offsets.values())
        self._outcomes.append([total, None if error is None else type(error).__name__])


def places(records: Iterable[Record]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


def named(offsets: dict[str, int]) -> dict[TopicPartition, int]:
    found = {}
    for name, offset in offsets.items():
        topic, _, number = name.rpartition("-")
        found[TopicPartition(topic, int(number))] = offset
    return found


def read_orders(orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(3)  # the parent is gone


def obey(consumer: Consumer, orders: queue.SimpleQueue[dict[str, Any]], *, polling: bool) -> None:
    known = Orders(consumer)
    while True:
        if polling and orders.empty():
            records = consumer.poll(POLL_SECONDS)
            generation = consumer.group_metadata().generation_id
            report(records=places(records), owned=sorted(consumer.assignment()), generation=generation)
            continue
        order = orders.get()
        name = order.pop("do")
        if name == "close":
            return
        try:
            report(value=getattr(known, name)(**order))
        except WakeupError:
            raise
        except MillstreamError as error:
            report(error=type(error).__name__, message=str(error))


def main() -> None:
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    start = json.loads(sys.stdin.readline())
    threading.Thread(target=read_orders, args=(orders,), daemon=True).start()
    with Consumer(start["settings"]) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
        consumer.subscribe(start["topics"], listener=Reporter())
        try:
            obey(consumer, orders, polling=start["polling"])
        except WakeupError:
            report(woken=time.monotonic())


if __name__ == "__main__":
    main()
