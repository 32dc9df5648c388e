"""Asks a stream's reader as Spark asks it, without a Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from millstream.spark.source.client import SourceClient
from millstream.spark.source.stream import StreamReader

ALL = ReadAllAvailable()
MakeStream = Callable[..., "Stream"]


class Stream:
    """Asks a reader as Spark does, with offsets as text in between."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader

    def start(self) -> dict[str, Any]:
        """The first offset that a batch can start from: Spark runs empty batches until there is one."""
        first = plain(self.reader.initialOffset())
        return self.next(first) if "#unstarted" in first else first

    def next(self, start: dict[str, Any], limit: ReadLimit = ALL) -> dict[str, Any]:
        return plain(self.reader.latestOffset(plain(start), limit))

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
        tasks = self.reader.partitions(plain(start), plain(end))
        return [(task.value.topic, task.value.partition, task.value.start, task.value.end) for task in tasks]


def plain(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def once(monkeypatch: pytest.MonkeyPatch, method: str, answer: object) -> list[object]:
    """Have the cluster give one wrong answer, and then the truth."""
    truth, wrong = getattr(SourceClient, method), [answer]
    monkeypatch.setattr(
        SourceClient, method, lambda self, *given: wrong.pop() if wrong else truth(self, *given)
    )
    return wrong


def always(monkeypatch: pytest.MonkeyPatch, method: str, answer: object) -> None:
    monkeypatch.setattr(SourceClient, method, lambda self, *given: answer)
