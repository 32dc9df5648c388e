"""Members of a group from four client libraries, which all tell one ledger what they own and read."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import aiokafka
import aiokafka.abc
import aiokafka.coordinator.assignors.range
import aiokafka.coordinator.assignors.roundrobin
import aiokafka.coordinator.assignors.sticky.sticky_assignor
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.coordinator.assignors.cooperative_sticky
import kafka.coordinator.assignors.range
import kafka.coordinator.assignors.roundrobin
import kafka.coordinator.assignors.sticky.sticky_assignor
import kafka.errors

from millstream import Consumer, RebalanceListener, TopicPartition
from millstream.errors import CommitFailedError, RebalanceInProgressError
from tests.waiting import SECONDS

SESSION_MS = 20_000
HEARTBEAT_MS = 100
POLL_SECONDS = 0.1
BATCH = 200


class Ledger:
    """Who owns which partition, what was read, and what should not have happened."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[TopicPartition, int]] = Counter()
        self.violations: list[str] = []
        self._owners: dict[TopicPartition, str] = {}
        self._lock = threading.Lock()

    def owners(self) -> dict[TopicPartition, str]:
        with self._lock:
            return dict(self._owners)

    def assigned(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                owner = self._owners.setdefault(partition, member)
                if owner != member:
                    self.violations.append(f"{partition} given to {member} while {owner} had it")

    def revoked(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                if self._owners.pop(partition, None) != member:
                    self.violations.append(f"{partition} taken from {member}, which did not have it")

    def read(self, records: Iterable[tuple[TopicPartition, int]]) -> None:
        with self._lock:
            self.seen.update(records)


@dataclass
class Member:
    """One member on a thread of its own, from ``start`` to ``stop``; as often as wanted."""

    run: Callable[[Member], None]
    name: str
    servers: str
    group: str
    topics: list[str]
    strategy: str
    ledger: Ledger
    stopping: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.stopping.clear()
        self.thread = threading.Thread(target=self._run, name=self.name)
        self.thread.start()

    def stop(self) -> None:
        """Leave the group; raises what went wrong on the thread."""
        if self.thread is None:
            return
        self.stopping.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive(), f"{self.name} does not end"
        self.thread = None
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self.run(self)
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self.error = error

    def assigned(self, partitions: Collection[Any]) -> None:
        self.ledger.assigned(self.name, map(_plain, partitions))

    def revoked(self, partitions: Collection[Any]) -> None:
        self.ledger.revoked(self.name, map(_plain, partitions))


def _plain(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


# --- millstream


class _Listener(RebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._member.assigned(partitions)

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.commit()
        self._member.revoked(partitions)


def run_millstream(member: Member) -> None:
    with Consumer(
        bootstrap_servers=member.servers,
        group_id=member.group,
        client_id=member.name,
        partition_assignment_strategy=member.strategy,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    ) as consumer:
        consumer.subscribe(member.topics, listener=_Listener(member))
        while not member.stopping.is_set():
            records = consumer.poll(POLL_SECONDS, max_records=BATCH)
            member.ledger.read((record.topic_partition, record.offset) for record in records)
            with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
                consumer.commit()


# --- confluent-kafka, which is librdkafka


def run_confluent(member: Member) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": member.servers,
            "group.id": member.group,
            "client.id": member.name,
            "partition.assignment.strategy": member.strategy,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )

    def commit() -> None:
        with contextlib.suppress(
            confluent_kafka.KafkaException
        ):  # a rebalance is under way, or nothing is new
            consumer.commit(asynchronous=False)

    def revoke(_: object, partitions: list[Any]) -> None:
        commit()
        member.revoked(partitions)

    consumer.subscribe(
        member.topics,
        on_assign=lambda _, partitions: member.assigned(partitions),
        on_revoke=revoke,
        on_lost=lambda _, partitions: member.revoked(partitions),
    )
    try:
        while not member.stopping.is_set():
            messages = consumer.consume(BATCH, POLL_SECONDS)
            assert not [message.error() for message in messages if message.error()]
            member.ledger.read(map(_place, messages))
            if messages:
                commit()
    finally:
        consumer.close()


def _place(message: Any) -> tuple[TopicPartition, int]:
    return TopicPartition(message.topic(), message.partition()), message.offset()


# --- kafka-python: its callbacks run on its own thread, so a batch may be read while its partition moves

_KAFKA_PYTHON = {
    "range": kafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    "sticky": kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
    "cooperative-sticky": kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor,
}


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._member.assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._member.revoked(revoked)


def run_kafka_python(member: Member) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=member.servers,
        group_id=member.group,
        client_id=member.name,
        partition_assignment_strategy=(_KAFKA_PYTHON[member.strategy],),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=BATCH,
    )
    consumer.subscribe(member.topics, listener=_KafkaPythonListener(member))
    try:
        while not member.stopping.is_set():
            for partition, records in consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)).items():
                member.ledger.read((_plain(partition), record.offset) for record in records)
            with contextlib.suppress(kafka.errors.KafkaError):
                consumer.commit()
    finally:
        consumer.close()


# --- aiokafka

_AIOKAFKA = {
    "range": aiokafka.coordinator.assignors.range.RangePartitionAssignor,
    "roundrobin": aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor,
    "sticky": aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor,
}


class _AiokafkaListener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._member.assigned(assigned)

    async def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._member.revoked(revoked)


def run_aiokafka(member: Member) -> None:
    asyncio.run(_run_aiokafka(member))


async def _run_aiokafka(member: Member) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=member.servers,
        group_id=member.group,
        client_id=member.name,
        partition_assignment_strategy=(_AIOKAFKA[member.strategy],),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_records=BATCH,
    )
    consumer.subscribe(member.topics, listener=_AiokafkaListener(member))
    await consumer.start()
    try:
        while not member.stopping.is_set():
            found = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            for partition, records in found.items():
                member.ledger.read((_plain(partition), record.offset) for record in records)
            with contextlib.suppress(aiokafka.errors.KafkaError, aiokafka.errors.IllegalStateError):
                await consumer.commit()
    finally:
        member.revoked(consumer.assignment())  # it does not tell its listener at the end
        await consumer.stop()


CLIENTS = {
    "millstream": run_millstream,
    "confluent-kafka": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}
