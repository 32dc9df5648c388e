"""Answers scrapes of the broker's metrics: collected on the event loop in short turns, written off it.

A turn takes about two milliseconds, whatever the number of partitions, and requests are served between turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Final

from millstream.broker.groups.metrics import GroupCounters, GroupGauges
from millstream.broker.metrics import BrokerMetrics
from millstream.broker.served_topics import Partition, Topic
from millstream.broker.services import Services
from millstream.errors import MillstreamError
from millstream.metrics import cluster, process
from millstream.metrics.cluster import ClusterReadings
from millstream.metrics.declarations import Metric, MetricReading, declared
from millstream.metrics.exposition import LEFT_OUT, exposition
from millstream.metrics.process import process_readings
from millstream.wire.records.batch_header import BATCH_OVERHEAD, read_header
from millstream.wire.slices import FileSlice

_TURN_S: Final = 0.002
_PATIENCE_S: Final = 10.0
_ALIVE_S: Final = 5.0

_Place = tuple[str, str, int]
"""A group, a topic and a partition."""


def broker_metrics() -> list[Metric]:
    """Return what is declared of every metric that a scrape of the broker can have."""
    classes = (("broker", BrokerMetrics), ("groups", GroupCounters), ("groups", GroupGauges))
    own = [metric for prefix, cls in classes for _, metric in declared(prefix, cls)]
    return [*cluster.ALL, *own, *process.ALL, LEFT_OUT]


class BrokerMonitor:
    """Reads one broker for those who ask over HTTP, on any thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._one_scrape = threading.Lock()
        self._times: dict[_Place, tuple[int, int]] = {}
        """The committed offset of each group that has a lag, with the time of the record there."""
        self.is_stopping = False

    def exposition(self) -> bytes:
        """Return the answer to a scrape. Raises TimeoutError if the broker is too busy."""
        with self._one_scrape:
            return exposition([*self._collected(), *process_readings()])

    def trouble(self) -> str:
        """Return why the broker should be restarted: its event loop does not turn."""
        turned = threading.Event()
        self._services.reactor.call_threadsafe(turned.set)
        return "" if turned.wait(_ALIVE_S) else f"the event loop has not turned for {_ALIVE_S:g} seconds"

    def unreadiness(self) -> str:
        """Return why clients cannot be served now."""
        return "the broker is stopping" if self.is_stopping else self.trouble()

    def _collected(self) -> list[MetricReading]:
        """Collect on the loop's thread, in turns, and wait for it here."""
        reactor, done = self._services.reactor, threading.Event()
        found: list[MetricReading] = []
        failures: list[Exception] = []
        steps = self._steps(found)

        def turn() -> None:
            end_s = time.perf_counter() + _TURN_S
            try:
                for _ in steps:
                    if time.perf_counter() >= end_s:
                        reactor.call_at(reactor.now_ms() + 1, turn)
                        return
            except Exception as error:  # noqa: BLE001 - raised again on the thread that asked
                failures.append(error)
            done.set()

        reactor.call_threadsafe(turn)
        if not done.wait(_PATIENCE_S):
            raise TimeoutError(f"the broker did not collect its metrics within {_PATIENCE_S:g} seconds")
        if failures:
            raise failures[0]
        return found

    def _steps(self, found: list[MetricReading]) -> Iterator[None]:
        """Collect step by step. Between two steps everything may change."""
        readings = ClusterReadings(brokers=1)
        for topic in list(self._services.topics):
            yield from _add_topic(readings, topic)
        times: dict[_Place, tuple[int, int]] = {}
        now_ms = self._services.epoch_ms()
        for group in self._services.groups.groups():
            readings.add_group(group.group_id, group.state.value, len(group.members))
            readings.set(cluster.GENERATION, (group.group_id,), group.generation)
            for (topic_name, index), committed in self._services.groups.offsets_of(group.group_id):
                partition = self._services.topics.partition(topic_name, index)
                end = None if partition is None else partition.log.end_offset
                readings.add_commit(group.group_id, topic_name, index, committed, end)
                if partition is not None:
                    place = (group.group_id, topic_name, index)
                    age_s = self._age_s(place, partition, committed, now_ms, times)
                    readings.set(cluster.LAG_SECONDS, (*place[:2], str(index)), age_s)
                yield
            yield
        self._times = times
        found += self._services.read_metrics()
        found += readings.readings()

    def _age_s(
        self,
        place: _Place,
        partition: Partition,
        committed: int,
        now_ms: int,
        times: dict[_Place, tuple[int, int]],
    ) -> float | None:
        """Return how old the next record of a group is; None if it has no time or cannot be read."""
        if committed >= partition.log.end_offset:
            return 0.0
        offset, record_ms = self._times.get(place, (-1, -1))
        if offset != committed:
            record_ms = _time_of(partition, max(committed, partition.log.start_offset))
        times[place] = committed, record_ms
        return None if record_ms < 0 else max(0, now_ms - record_ms) / 1000


def _add_topic(readings: ClusterReadings, topic: Topic) -> Iterator[None]:
    size = 0
    for partition in list(topic.partitions):
        log = partition.log
        readings.add_partition(topic.name, partition.index, log.start_offset, log.end_offset)
        size += log.size_bytes
        yield
    readings.set(cluster.PARTITIONS, (topic.name,), len(topic.partitions))
    readings.set(cluster.SIZE, (topic.name,), size)
    yield


def _time_of(partition: Partition, offset: int) -> int:
    """Return the time of a record from its batch's header, which has the first and last; -1 for none."""
    try:
        batch = partition.log.read(offset, 0, at_least_one=True)
        header = read_header(FileSlice(batch.holder, batch.offset, min(len(batch), BATCH_OVERHEAD)).read())
    except (MillstreamError, OSError, EOFError):
        return -1
    if header.base_timestamp < 0:
        return -1
    span_ms = max(0, header.max_timestamp - header.base_timestamp)
    share = (offset - header.base_offset) / max(1, header.last_offset_delta)
    return header.base_timestamp + round(span_ms * min(1.0, max(0.0, share)))
