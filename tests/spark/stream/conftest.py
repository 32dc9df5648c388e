"""Streams that are asked without a Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.spark.reading.schema import COLUMNS
from millstream.spark.source.options import read_options
from millstream.spark.source.stream import StreamReader
from tests.spark.stream.asking import MakeStream, Stream
from tests.waiting import SECONDS


@pytest.fixture
def stream(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStream]:
    # How long a batch waits for a commit, and for how long it then tries none: a busy machine needs more.
    monkeypatch.setattr("millstream.spark.source.client._MIRROR_SECONDS", SECONDS)
    monkeypatch.setattr("millstream.spark.source.client._MIRROR_PAUSE_SECONDS", 3600.0)
    made: list[StreamReader] = []

    def make(topic: str = "", **options: str) -> Stream:
        given = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "startingOffsets": "earliest",
            "fetchOffset.retryIntervalMs": "10",
            **({"subscribe": topic} if topic else {}),
            **options,
        }
        made.append(StreamReader(read_options(given, streaming=True), COLUMNS))
        return Stream(made[-1])

    yield make
    for reader in made:
        reader.stop()
