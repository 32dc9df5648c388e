"""Calls that block, made on threads of their own so that the event loop never waits for a broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_a_thread(call: Callable[[], T], name: str) -> T:
    """What the call returns or raises.

    The thread is a daemon, which an executor's are not: the end of the console does not wait for a broker.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():  # whoever waited has gone
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
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            failure = error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:  # the loop is closed: the console has ended meanwhile
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await outcome
