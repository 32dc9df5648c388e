"""Answers that many ask for at a time: each is made once, and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from millstream.console.threads import on_a_thread

T = TypeVar("T")

_MOST_KEPT: Final = 64
_MOST_AT_ONCE: Final = 4
"""How many threads may be at work for this."""


class Shared:
    """Makes answers on threads. Whoever asks for what is being made waits for the same answer."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def get(self, key: Hashable, make: Callable[[], T], *, keep_s: float) -> T:
        """The answer for this key, at most ``keep_s`` old. An error is raised to all, and not kept."""
        now_s = asyncio.get_running_loop().time()
        begun_s, task = self._kept.get(key, (0.0, None))
        if task is None or (task.done() and (now_s - begun_s >= keep_s or _has_failed(task))):
            task = asyncio.create_task(self._make(make))
            self._kept[key] = (now_s, task)
            self._forget_some()
        self._kept.move_to_end(key)
        answer: T = await asyncio.shield(task)
        return answer

    def close(self) -> None:
        """Let everybody go who waits, as the console ends."""
        for _, task in self._kept.values():
            task.cancel()

    async def _make(self, make: Callable[[], T]) -> T:
        async with self._room:
            return await on_a_thread(make, "millstream-console-answer")

    def _forget_some(self) -> None:
        for key in list(self._kept)[: max(0, len(self._kept) - _MOST_KEPT)]:
            if self._kept[key][1].done():
                del self._kept[key]


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or task.exception() is not None
