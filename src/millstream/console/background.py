"""Blocking calls on threads, so that the event loop never waits for a broker; results are shared."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MOST_KEPT: Final = 64
_MOST_AT_ONCE: Final = 4
"""How many threads may work for the shared results."""


async def on_a_thread(call: Callable[[], T], name: str) -> T:
    """Run ``call`` on a daemon thread, and return or raise its result.

    Threads of an executor are no daemons: the console's end would wait for brokers.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():  # cancelled
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed: the console has ended
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome


class SharedResults:
    """Runs calls on threads. Concurrent requests for one key share one call, and its result is kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def get(self, key: Hashable, make: Callable[[], T], *, keep_s: float) -> T:
        """The result for ``key``, at most ``keep_s`` old. An error is raised to all, and not kept."""
        now_s = asyncio.get_running_loop().time()
        begun_s, task = self._kept.get(key, (0.0, None))
        if task is None or (task.done() and (now_s - begun_s >= keep_s or _has_failed(task))):
            task = asyncio.create_task(self._make(make))
            self._kept[key] = (now_s, task)
            self._forget_some()
        self._kept.move_to_end(key)
        result: T = await asyncio.shield(task)
        return result

    def close(self) -> None:
        """Cancel all requests, as the console ends."""
        for _, task in self._kept.values():
            task.cancel()

    async def _make(self, make: Callable[[], T]) -> T:
        async with self._room:
            return await on_a_thread(make, "millstream-console-call")

    def _forget_some(self) -> None:
        for key in list(self._kept)[: max(0, len(self._kept) - _MOST_KEPT)]:
            if self._kept[key][1].done():
                del self._kept[key]


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
