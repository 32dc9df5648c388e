"""The demo's producer: sends the customers at a steady pace, and counts what the broker has acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Self

from millstream import Producer
from millstream.cli.demo.customers import Customer
from millstream.model import RecordMetadata

_AT_ONCE: Final = 100
_CLOSE_SECONDS: Final = 1.0


class Feed:
    """Sends in a thread of its own, from the start of the block; leaving the block ends it."""

    def __init__(self, servers: str, topic: str, customers: Iterable[Customer], per_second: int) -> None:
        self._producer = Producer(
            bootstrap_servers=servers, key_serializer="string", value_serializer="string", linger_ms=10
        )
        self._topic = topic
        self._customers = customers
        self._per_second = per_second
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self._futures: list[tuple[str, Future[RecordMetadata]]] = []
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(_CLOSE_SECONDS)
        # After an error, or Ctrl-C, the broker may be gone: what is not delivered yet does not matter then.
        self._producer.close(None if kind is None else _CLOSE_SECONDS)

    @property
    def is_done(self) -> bool:
        """Whether all customers were sent, or sending has failed."""
        return not self._thread.is_alive()

    def acknowledged(self) -> Counter[str]:
        """How many customers of each country are on the broker's disk. Raises the first error, if any."""
        if self.error is not None:
            raise self.error
        self._producer.flush()
        for _, future in self._futures:
            future.result()
        return Counter(country for country, _ in self._futures)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            for number, customer in enumerate(self._customers, start=1):
                future = self._producer.send(self._topic, customer.country, customer.name)
                self._futures.append((customer.country, future))
                due_in = started + number / self._per_second - time.monotonic()
                if number % _AT_ONCE == 0 and self._ended.wait(max(0.0, due_in)):
                    return
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that asks for the result
            self.error = error
