"""AsyncConsumer: the same behaviour, awaited, and an event loop that is never blocked."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine
from typing import Any

import pytest

from millstream import AsyncConsumer, Producer, RebalanceListener, TopicPartition
from millstream.errors import ConcurrentAccessError, ConsumerClosedError, WakeupError
from tests.conftest import NewTopic
from tests.waiting import SECONDS

COUNT = 500


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


@pytest.fixture
def topic(bootstrap_servers: str, new_topic: NewTopic) -> str:
    name = new_topic()
    with Producer(bootstrap_servers=bootstrap_servers, value_serializer="int") as producer:
        for number in range(COUNT):
            producer.send(name, number)
    return name


def consumer(bootstrap_servers: str, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=f"group-{uuid.uuid4().hex}",
        value_deserializer="int",
        auto_offset_reset="earliest",
        **settings,
    )


def test_reading_and_committing(bootstrap_servers: str, topic: str) -> None:
    async def work() -> None:
        async with consumer(bootstrap_servers) as reader:
            await reader.subscribe([topic])
            found: list[int] = []
            while len(found) < COUNT:
                found += [record.value for record in await reader.poll(1.0)]
            assert found == list(range(COUNT))
            await reader.commit()
            where = TopicPartition(topic, 0)
            committed = (await reader.committed([where]))[where]
            assert committed is not None
            assert committed.offset == COUNT
            assert await reader.position(where) == COUNT
            while "caught up" not in await reader.diagnose():  # the next fetch may be under way yet
                assert not await reader.poll(0.1)

    run(work())


def test_iterating_commits_what_was_seen(bootstrap_servers: str, topic: str) -> None:
    async def work() -> None:
        async with consumer(bootstrap_servers, enable_auto_commit=False) as reader:
            await reader.subscribe([topic])
            async for record in reader:
                if record.value == 41:
                    await reader.commit()
                    break
            where = TopicPartition(topic, 0)
            committed = (await reader.committed([where]))[where]
            assert committed is not None
            assert committed.offset == 42

    run(work())


class AsyncListener(RebalanceListener):
    """Seeks in a coroutine, as the partitions come."""

    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []

    async def on_assigned(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:  # type: ignore[override]
        self.assigned += partitions
        for partition in partitions:
            await consumer.seek(partition, 490)

    async def on_revoked(self, consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:  # type: ignore[override]
        self.revoked += partitions
        await consumer.commit(dict.fromkeys(partitions, 7))


def test_a_listener_of_coroutines(bootstrap_servers: str, topic: str) -> None:
    async def work() -> None:
        listener = AsyncListener()
        reader = consumer(bootstrap_servers, enable_auto_commit=False)
        await reader.subscribe([topic], listener=listener)
        records = await reader.poll(SECONDS)
        assert records[0].offset == 490
        assert listener.assigned == [TopicPartition(topic, 0)]
        await reader.close()
        assert listener.revoked == [TopicPartition(topic, 0)]

    run(work())


def test_the_loop_goes_on_while_a_poll_waits(bootstrap_servers: str, new_topic: NewTopic) -> None:
    async def work() -> None:
        async with consumer(bootstrap_servers) as reader:
            await reader.subscribe([new_topic()])
            await reader.poll(0.5)
            waiting = asyncio.create_task(reader.poll(SECONDS / 2))
            longest = 0.0
            for _ in range(50):
                before = time.perf_counter()
                await asyncio.sleep(0.002)
                longest = max(longest, time.perf_counter() - before)
            assert longest < SECONDS / 4, "the loop stood still for as long as the poll waited"
            with pytest.raises(ConcurrentAccessError):
                await reader.poll(0)
            reader.wakeup()
            with pytest.raises(WakeupError):
                await waiting

    run(work())


def test_a_cancelled_poll_loses_nothing(bootstrap_servers: str, topic: str) -> None:
    async def work() -> None:
        async with consumer(bootstrap_servers) as reader:
            await reader.subscribe([topic])
            for _ in range(20):
                waiting = asyncio.create_task(reader.poll(5.0, max_records=1))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            found: list[int] = []
            while len(found) < COUNT:
                found += [record.value for record in await reader.poll(1.0)]
            assert found == list(range(COUNT))

    run(work())


def test_use_after_close(bootstrap_servers: str) -> None:
    async def work() -> None:
        reader = consumer(bootstrap_servers)
        await reader.close()
        await reader.close()
        with pytest.raises(ConsumerClosedError):
            await reader.poll(0)

    run(work())
