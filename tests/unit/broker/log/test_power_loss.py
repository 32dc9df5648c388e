"""Power cuts at random moments, on a disk that forgets whatever was not synced. Every failure has a seed.

The rule: what a sync has reported as durable is there, in order, and whatever else is there was appended.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from millstream.broker.log.config import LogConfig
from millstream.broker.log.partition import PartitionLog
from millstream.errors import KafkaStorageError, OutOfOrderSequenceNumberError
from millstream.wire.records.batch_header import read_header
from millstream.wire.records.batches import RecordData
from tests.unit.broker.log.faults import PowerCut, PowerLossFiles
from tests.unit.broker.log.support import NOW, make_batch, read_all

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100)
PRODUCERS = 2
ROUNDS = 12


class Simulation:
    """One log through many lives, and what is known about it from outside."""

    def __init__(self, seed: int, root: Path) -> None:
        self.random = Random(seed)
        self.root = root
        self.lives = 0
        self.crashes = 0
        self.point = 0  # the recovery point on the disk, which may lag behind
        self.files = PowerLossFiles(root / "disk-0")
        self.appended: dict[int, bytes] = {}  # offset -> value, of all that may still be in the log
        self.durable = 0
        self.start = self.new_start = 0
        self.counter = 0
        self.sequences = [0] * PRODUCERS
        self.highest_epoch = -1
        self.log = self.open(clean=True)

    def open(self, *, clean: bool) -> PartitionLog:
        self.crashes += not clean
        return PartitionLog.open(
            Path(self.files.root) / "t-0",
            CONFIG,
            files=self.files,
            clean=clean,
            now_ms=NOW,
            recovery_point=self.point,
            epoch_floor=self.crashes,
        )

    # -- what happens

    def checkpoint(self) -> None:
        self.point = max(self.point, self.log.durable_offset)

    def append(self) -> None:
        producer = self.random.randrange(PRODUCERS)
        count = self.random.randint(1, 3)
        values = [b"%d:%d:" % (producer, self.counter + index) + bytes(40) for index in range(count)]
        self.counter += count
        base_offset = self.log.end_offset
        for index, value in enumerate(values):  # before it is done, as the power may go in between
            self.appended[base_offset + index] = value
        self.highest_epoch = max(self.highest_epoch, self.log.leader_epoch)
        result = self.log.append(self.batch(producer, self.sequences[producer], values), NOW)
        assert (result.base_offset, result.duplicate) == (base_offset, False)
        self.sequences[producer] += count

    def batch(self, producer: int, sequence: int, values: list[bytes]) -> bytes:
        timestamp = NOW + self.random.randrange(1000)
        return make_batch(
            values, timestamp=timestamp, producer_id=producer, producer_epoch=0, base_sequence=sequence
        )

    def sync(self) -> None:
        ticket = self.log.take_unsynced()
        for _ in range(self.random.randint(0, 2)):
            self.append()  # while the sync is under way
        ticket.sync()
        self.log.synced(ticket)
        self.durable = max(self.durable, self.log.durable_offset)

    def failed_sync(self) -> None:
        ticket = self.log.take_unsynced()
        for _ in range(self.random.randint(0, 2)):
            self.append()
        if self.random.random() < 0.5:
            ticket.sync()  # of which some files may have got through
        before = self.log.durable_offset
        self.log.sync_failed(ticket, OSError("failed"))
        assert self.log.end_offset >= before
        self.check()

    def delete_records(self) -> None:
        if self.log.end_offset:
            self.new_start = self.random.randint(self.log.start_offset, self.log.end_offset)
            self.start = self.log.delete_records(self.new_start)

    def maintain(self) -> None:
        for path in self.log.maintain(NOW).trash:
            self.files.unlink(path)
        self.start = max(self.start, self.log.start_offset)

    # -- how lives end

    def power_cut(self) -> None:
        self.lives += 1
        self.files = self.files.after_power_loss(self.random, self.root / f"disk-{self.lives}")
        self.log = self.open(clean=False)
        self.check()

    def kill(self) -> None:
        self.log.close(clean=False)
        self.log = self.open(clean=False)
        self.check()

    def clean_restart(self) -> None:
        end = self.log.end_offset
        self.log.close(clean=True)
        self.durable = end
        if self.random.random() < 0.5:  # the power goes right after the stop
            self.lives += 1
            self.files = self.files.after_power_loss(self.random, self.root / f"disk-{self.lives}")
        self.point = end
        self.log = self.open(clean=True)
        assert self.log.end_offset == end
        self.check(bumped=False)

    # -- what must hold

    def check(self, *, bumped: bool = True) -> None:
        log = self.log
        assert log.end_offset >= self.durable, "something durable is missing"
        assert log.start_offset >= self.start, "deleted records are back"
        if self.durable > self.start:
            assert log.start_offset in (self.start, self.new_start), "the start is missing"
        self.start = self.new_start = log.start_offset
        records = read_all(log)
        assert [record.offset for record in records] == list(range(log.start_offset, log.end_offset))
        for record in records:
            assert record.value == self.appended[record.offset], "something was invented"
        if bumped and log.end_offset:
            assert log.leader_epoch > self.highest_epoch, "an epoch is used twice"
        self.appended = {offset: value for offset, value in self.appended.items() if offset < log.end_offset}
        self.check_indexes(records)
        self.check_producers()

    def check_indexes(self, records: list[RecordData]) -> None:
        """Whatever has become of the indexes, everything is found."""
        for record in self.random.sample(records, min(10, len(records))):
            header = read_header(self.log.read(record.offset, 1).read())
            assert header.base_offset <= record.offset <= header.last_offset
            since = [(each.offset, each.timestamp) for each in records if each.timestamp >= record.timestamp]
            assert self.log.offset_for_timestamp(record.timestamp) == since[0]
        latest = max(((each.timestamp, -each.offset) for each in records), default=None)
        found = self.log.offset_of_max_timestamp()
        assert found == (None if latest is None else (-latest[1], latest[0]))

    def check_producers(self) -> None:
        """A producer that goes on where the log stands is taken; its last batch is known."""
        for producer in range(PRODUCERS):
            sent = [offset for offset, value in self.appended.items() if value.startswith(b"%d:" % producer)]
            self.sequences[producer] = len(sent)
            if any(offset >= self.log.start_offset for offset in sent):
                gap = self.batch(producer, len(sent) + 5, [b"gap"])
                with pytest.raises(OutOfOrderSequenceNumberError):
                    self.log.append(gap, NOW)

    def run(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (12, self.append),
            (4, self.sync),
            (2, self.checkpoint),
            (1, self.failed_sync),
            (1, self.delete_records),
            (1, self.maintain),
        ]
        ends = [self.power_cut, self.power_cut, self.kill, self.clean_restart]
        for _ in range(ROUNDS):
            end = self.random.choice(ends)
            if end == self.power_cut and self.random.random() < 0.5:
                self.files.fuse = self.random.randint(0, 100)
            try:
                for _ in range(self.random.randint(0, 25)):
                    self.random.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
            except PowerCut:
                end = self.power_cut
            end()
            self.log.read(self.log.start_offset, 1000)


@pytest.mark.parametrize("seed", range(24))
def test_nothing_durable_is_lost(seed: int, tmp_path: Path) -> None:
    Simulation(seed, tmp_path).run()


@pytest.mark.parametrize("bug", ["skip_file_syncs", "skip_directory_syncs"])
def test_the_simulation_finds_missing_syncs(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that forgets to sync must be caught, or the test above proves nothing."""
    monkeypatch.setattr(PowerLossFiles, bug, True)
    caught = 0
    for seed in range(12):
        try:
            Simulation(seed, tmp_path / f"{seed}").run()
        except (AssertionError, KeyError, KafkaStorageError):
            caught += 1
    assert caught >= 3
