"""A producer that sends to a topic at a steady rate and counts acknowledged records."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final, Self

from millstream import Producer
from millstream.demo.records import DemoRecord
from millstream.model import RecordMetadata

_AT_ONCE: Final = 100
_CLOSE_SECONDS: Final = 1.0


class Feed:
    """Sends on a thread while its ``with`` block runs."""

    def __init__(self, servers: str, topic: str, records: Iterable[DemoRecord], per_second: int) -> None:
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

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._ended.set()
        self._thread.join(_CLOSE_SECONDS)
        # After an error or Ctrl-C the broker may be gone, and delivery does not matter.
        self._producer.close(None if kind is None else _CLOSE_SECONDS)

    @property
    def is_done(self) -> bool:
        """Whether all records were sent, or sending has failed."""
        return not self._thread.is_alive()

    def acknowledged(self) -> Counter[str]:
        """The number of acknowledged records by label. Raises the first error, if any."""
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
        except Exception as error:  # noqa: BLE001 - raised by ``acknowledged``
            self.error = error
