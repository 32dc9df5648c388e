"""The demo's producers: each sends to a topic at a steady pace, and counts what is acknowledged."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, NamedTuple, Self

from millstream import Producer
from millstream.model import RecordMetadata

_AT_ONCE: Final = 100
_CLOSE_SECONDS: Final = 1.0


class Sent(NamedTuple):
    """A record, and the label under which the demo counts it."""

    key: str
    value: str
    label: str


class Feed:
    """Sends in a thread of its own, from the start of the block; leaving the block ends it."""

    def __init__(self, servers: str, topic: str, records: Iterable[Sent], per_second: int) -> None:
        self._producer = Producer(
            bootstrap_servers=servers, key_serializer="string", value_serializer="string", linger_ms=10
        )
        self._topic = topic
        self._records = records
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
        """Whether all records were sent, or sending has failed."""
        return not self._thread.is_alive()

    def acknowledged(self) -> Counter[str]:
        """How many records of each label are on the broker's disk. Raises the first error, if any."""
        if self.error is not None:
            raise self.error
        self._producer.flush()
        for _, future in self._futures:
            future.result()
        return Counter(label for label, _ in self._futures)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            for number, record in enumerate(self._records, start=1):
                future = self._producer.send(self._topic, record.value, record.key)
                self._futures.append((record.label, future))
                due_in = started + number / self._per_second - time.monotonic()
                if number % _AT_ONCE == 0 and self._ended.wait(max(0.0, due_in)):
                    return
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that asks for the result
            self.error = error
