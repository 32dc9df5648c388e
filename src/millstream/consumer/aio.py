"""AsyncConsumer: Consumer for asyncio. Every method is awaited, and none blocks the event loop.

It runs a ``Consumer`` on a thread of its own, so both behave alike. The rebalance listener's methods
may be coroutines: they run on the event loop, and the rebalance waits for them.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from millstream.config.keywords import ConsumerKeywords
from millstream.consumer.consumer import Consumer, session_of
from millstream.consumer.decoding.records import Record, Records
from millstream.consumer.listener import RebalanceListener
from millstream.consumer.membership.values import GroupMetadata
from millstream.consumer.user.arguments import OffsetsToCommit
from millstream.consumer.user.calls import CommitCallback
from millstream.errors import ConcurrentAccessError, ConsumerClosedError
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

P = ParamSpec("P")
T = TypeVar("T")

_CLOSE_SECONDS = 30.0


class AsyncConsumer:
    """As ``Consumer``, with methods to await. One task at a time; ``wakeup`` may be called from any."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[ConsumerKeywords]
    ) -> None:
        self._consumer = Consumer(settings, **keywords)
        self._session = session_of(self._consumer)
        self._session.remember_polls()
        name = f"millstream-{self._session.config.client_id}-calls"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._busy = False
        self._in_callback: asyncio.Task[Any] | None = None

    # --- choosing what to read

    async def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See ``Consumer.subscribe``. The listener's methods may be coroutines; they get this consumer."""
        bridge = None if listener is None else _ListenerBridge(self, listener, asyncio.get_running_loop())
        await self._call(self._consumer.subscribe, topics, pattern=pattern, listener=bridge)

    async def unsubscribe(self) -> None:
        await self._call(self._consumer.unsubscribe)

    async def subscription(self) -> frozenset[str]:
        return await self._call(self._consumer.subscription)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        await self._call(self._consumer.assign, partitions)

    async def assignment(self) -> frozenset[TopicPartition]:
        return await self._call(self._consumer.assignment)

    # --- reading

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> Records:
        """See ``Consumer.poll``. A cancelled poll takes no records."""
        return await self._call(self._consumer.poll, timeout, max_records)

    async def poll_arrow(
        self, timeout: float = 1.0, max_records: int | None = None, headers: bool = False
    ) -> Any:
        return await self._call(self._consumer.poll_arrow, timeout, max_records, headers)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Records one by one, without end; a commit in the loop covers the records that it has seen."""
        while not self._session.is_closed:
            record = self._session.next_fetched()
            if record is None:
                await self._call(self._session.fetch_more, self._consumer)
            else:
                yield record

    # --- committing

    async def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        await self._call(self._consumer.commit, offsets, timeout)

    async def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> None:
        """See ``Consumer.commit_async``. The callback is called on the event loop."""
        loop = asyncio.get_running_loop()

        def tell(stored: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
            assert callback is not None, "only called if there is one"
            loop.call_soon_threadsafe(callback, stored, error)

        await self._call(self._consumer.commit_async, offsets, None if callback is None else tell)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._call(self._consumer.committed, partitions, timeout)

    # --- positions

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        return await self._call(self._consumer.position, partition, timeout)

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        await self._call(self._consumer.seek, partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        await self._call(self._consumer.seek_to_beginning, *partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        await self._call(self._consumer.seek_to_end, *partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._call(self._consumer.offsets_for_times, timestamps, timeout)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._call(self._consumer.beginning_offsets, partitions, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._call(self._consumer.end_offsets, partitions, timeout)

    async def lag(self, partition: TopicPartition, timeout: float | None = None) -> int:
        return await self._call(self._consumer.lag, partition, timeout)

    # --- flow and the cluster

    async def pause(self, *partitions: TopicPartition) -> None:
        await self._call(self._consumer.pause, *partitions)

    async def resume(self, *partitions: TopicPartition) -> None:
        await self._call(self._consumer.resume, *partitions)

    async def fetch_until(self, partition: TopicPartition, end: int | None) -> None:
        await self._call(self._consumer.fetch_until, partition, end)

    async def paused(self) -> frozenset[TopicPartition]:
        return await self._call(self._consumer.paused)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        return await self._call(self._consumer.partitions_for, topic, timeout)

    async def topics(self, timeout: float | None = None) -> list[str]:
        return await self._call(self._consumer.topics, timeout)

    # --- life

    def wakeup(self) -> None:
        """Make the present or the next call that waits raise WakeupError; from anywhere."""
        self._consumer.wakeup()

    async def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """See ``Consumer.close``."""
        if not self._session.is_closed:
            await self._call(self._consumer.close, timeout)
        self._thread.shutdown(wait=False)

    async def enforce_rebalance(self, reason: str | None = None) -> None:
        await self._call(self._consumer.enforce_rebalance, reason)

    async def group_metadata(self) -> GroupMetadata:
        return await self._call(self._consumer.group_metadata)

    async def metrics(self) -> dict[str, int | float]:
        return await self._call(self._consumer.metrics)

    async def diagnose(self) -> str:
        return await self._call(self._consumer.diagnose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- inside

    async def _call(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run on the consumer's thread. A task that is cancelled leaves no call running behind it."""
        if self._in_callback is not None and asyncio.current_task() is self._in_callback:
            # The consumer's thread waits for this very callback, so the call must not go there: it runs on
            # another thread, on behalf of the one that waits.
            return await asyncio.to_thread(self._session.alone.lend, method, *args, **kwargs)
        if self._session.is_closed:
            raise ConsumerClosedError
        if self._busy:
            raise ConcurrentAccessError(
                "another task is using this consumer: give each task a consumer of its own"
            )
        self._busy = True
        running = self._thread.submit(method, *args, **kwargs)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            await self._interrupt(running, polls=method in (self._consumer.poll, self._consumer.poll_arrow))
            raise
        finally:
            self._busy = False

    async def _interrupt(self, running: Future[Any], *, polls: bool) -> None:
        """End a call whose task was cancelled; records that it has taken meanwhile are read again."""
        if not running.cancelled():
            self._consumer.wakeup()
            ended = asyncio.wrap_future(running)
            await asyncio.wait([ended])
            if ended.exception() is None and polls:  # looked at, or asyncio would report it as forgotten
                self._session.undo_poll()
        self._session.waits.forget_wakeup()

    async def _run_callback(self, method: Callable[..., Any], partitions: list[TopicPartition]) -> None:
        """Run a listener's method on the event loop; calls that it makes are let through."""
        self._in_callback = asyncio.current_task()
        try:
            outcome = method(self, partitions)
            if inspect.isawaitable(outcome):
                await outcome
        finally:
            self._in_callback = None


class _ListenerBridge(RebalanceListener):
    """Brings rebalance events from the consumer's thread to the event loop, and waits for the user's code."""

    def __init__(
        self, consumer: AsyncConsumer, listener: RebalanceListener, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._consumer = consumer
        self._listener = listener
        self._loop = loop

    def on_assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._run(self._listener.on_assigned, partitions)

    def on_revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._run(self._listener.on_revoked, partitions)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._run(self._listener.on_lost, partitions)

    def _run(self, method: Callable[..., Any], partitions: list[TopicPartition]) -> None:
        work = self._consumer._run_callback(method, partitions)
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
