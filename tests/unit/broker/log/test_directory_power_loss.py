"""Power cuts over a whole data directory: topics, epochs, recovery points and logs together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from millstream.broker.log.config import LogConfig
from millstream.broker.log.directory import DirectoryIdentity, LogDirectory
from millstream.broker.log.topic_store import StoredTopic
from millstream.model import TopicPartition
from tests.unit.broker.log.faults import PowerCut, PowerLossFiles
from tests.unit.broker.log.support import NOW, make_batch, read_all

NAMES = ["a", "b", "c"]
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


class Simulation:
    """A broker's data through many lives."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = Random(seed)
        self.root = root
        self.lives = 0
        self.files = PowerLossFiles(root / "disk-0")
        self.counter = 0
        self.topics: dict[str, StoredTopic] = {}  # as a client was told
        self.uncertain: set[str] = set()  # a change was under way when the power went
        self.appended: dict[TopicPartition, dict[int, bytes]] = {}
        self.durable: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.directory = self.open()

    def open(self) -> LogDirectory:
        identity = DirectoryIdentity("cluster", 1, "directory")
        return LogDirectory.open(
            self.files.root, identity, now_ms=NOW, files=self.files, defaults=CONFIG, open_segments=4
        )

    def create(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.topics:
            self.counter += 1
            topic = StoredTopic(name, self.counter.to_bytes(16, "big"), 2)
            self.uncertain.add(name)
            self.directory.create_topics([topic], NOW)
            self.uncertain.discard(name)
            self.topics[name] = topic

    def delete(self) -> None:
        name = self.random.choice(NAMES)
        if name in self.topics:
            self.uncertain.add(name)
            for path in self.directory.delete_topic(name):
                self.files.remove_tree(path)
            self.uncertain.discard(name)
            self.forget(name)

    def forget(self, name: str) -> None:
        del self.topics[name]
        for number in range(2):
            for known in (self.appended, self.durable, self.epochs):
                known.pop(TopicPartition(name, number), None)

    def append(self) -> None:
        if self.directory.logs:
            partition = self.random.choice(sorted(self.directory.logs))
            log = self.directory.logs[partition]
            self.counter += 1
            value = b"%d" % self.counter
            self.appended.setdefault(partition, {})[log.end_offset] = value
            self.epochs[partition] = max(self.epochs.get(partition, 0), log.leader_epoch)
            log.append(make_batch([value]), NOW)

    def sync(self) -> None:
        for partition, log in self.directory.logs.items():
            if self.random.random() < 0.5:
                ticket = log.take_unsynced()
                ticket.sync()
                log.synced(ticket)
                self.durable[partition] = log.durable_offset

    def checkpoint(self) -> None:
        self.directory.checkpoint()()

    def stop(self) -> None:
        ends = {partition: log.end_offset for partition, log in self.directory.logs.items()}
        assert self.directory.close() == {}
        self.durable.update(ends)

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (2, self.create),
            (1, self.delete),
            (12, self.append),
            (3, self.sync),
            (2, self.checkpoint),
        ]
        for _ in range(10):
            self.files.fuse = self.random.choice([None, self.random.randint(0, 150)])
            stopped = False
            try:
                for _ in range(self.random.randint(0, 40)):
                    self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
                if self.random.random() < 0.4:
                    self.stop()
                    stopped = True
            except PowerCut:
                pass
            self.lives += 1
            self.files = self.files.after_power_loss(self.random, self.root / f"disk-{self.lives}")
            self.directory = self.open()
            assert self.directory.was_clean or not stopped
            self.check(crashed=not self.directory.was_clean)

    def check(self, *, crashed: bool) -> None:
        found = {topic.name: topic for topic in self.directory.topics}
        for name in NAMES:
            if name not in self.uncertain:
                assert found.get(name) == self.topics.get(name)
            elif name in found and name not in self.topics:
                self.topics[name] = found[name]
            elif name in self.topics and name not in found:
                self.forget(name)
        self.uncertain.clear()
        assert self.directory.failed == {}
        for partition, log in self.directory.logs.items():
            appended = self.appended.get(partition, {})
            assert log.end_offset >= self.durable.get(partition, 0), "something durable is missing"
            for record in read_all(log):
                assert record.value == appended[record.offset], "something was invented"
            if crashed:
                assert log.leader_epoch > self.epochs.get(partition, -1), "an epoch is used twice"
            kept = {offset: value for offset, value in appended.items() if offset < log.end_offset}
            self.appended[partition] = kept


@pytest.mark.parametrize("seed", range(16))
def test_nothing_durable_is_lost(seed: int, tmp_path: Path) -> None:
    Simulation(seed, tmp_path).run()
