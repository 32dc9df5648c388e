"""Background work on the logs, and how a stop ends it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from millstream.broker.log.upkeep import compaction
from millstream.broker.services import Services
from millstream.broker.settings import BrokerSettings
from millstream.model import TopicPartition
from tests.unit.broker.log.support import make_batch, read_all, sync
from tests.waiting import SECONDS

BATCHES, RECORDS = 40, 50


def test_a_stop_cancels_a_running_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services(tmp_path, BrokerSettings())
    services.open()
    topic = services.topics.create("t", 1, {"cleanup.policy": "compact", "segment.bytes": "8000"})
    log = topic.partitions[0].log
    for number in range(BATCHES):
        keys = [b"%d" % key for key in range(RECORDS)]
        log.append(make_batch([b"%d" % number] * RECORDS, keys=keys), services.epoch_ms())
    sync(log)
    begun, never = threading.Event(), threading.Event()
    calls, digest = 0, compaction.digest

    def slow_digest(key: bytes) -> bytes:
        nonlocal calls
        calls += 1
        if calls > BATCHES * RECORDS + RECORDS:  # all keys were read, and compacted files are being written
            begun.set()
            never.wait(0.005)  # as long as a large log takes
        return digest(key)

    monkeypatch.setattr(compaction, "digest", slow_digest)
    services.maintenance._compact()
    assert begun.wait(SECONDS)
    services.close()
    assert calls < BATCHES * RECORDS * 3 // 2, "the stop did not wait for the whole log"
    assert not list(tmp_path.rglob("*.cleaned")), "what was written beside the log is gone"
    again = Services(tmp_path, BrokerSettings())
    again.open()
    try:
        assert len(read_all(again.directory.logs[TopicPartition("t", 0)])) == BATCHES * RECORDS
    finally:
        again.close()
