"""Compaction: the latest record of each key stays, at its offset, whatever happens in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.upkeep.compaction import CompactionPlan, CompactionResult
from millstream.errors import KafkaStorageError, OutOfOrderSequenceNumberError
from millstream.wire.records.batch_header import iter_headers, read_header
from millstream.wire.records.batches import RecordData, encode_batch
from millstream.wire.records.codecs import Codec
from tests.unit.broker.log.faults import CrashingFiles, PowerCut, PowerLossFiles
from tests.unit.broker.log.support import NOW, QuickFiles, open_log, read_all, sync

DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 600,
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 0.0,
}

Pair = tuple[bytes, bytes | None]


def open_compacted(directory: Path, **options: object) -> PartitionLog:
    return open_log(directory, **{**SETTINGS, **options})  # type: ignore[arg-type]


def keyed(pairs: Sequence[Pair], timestamp: int = NOW, **options: object) -> bytes:
    records = [RecordData(index, timestamp + index, key, value) for index, (key, value) in enumerate(pairs)]
    return encode_batch(records, **options)  # type: ignore[arg-type]


def put(log: PartitionLog, *pairs: Pair, **options: object) -> None:
    log.append(keyed(pairs, **options), NOW)  # type: ignore[arg-type]


def plan(log: PartitionLog, now_ms: int = NOW) -> CompactionPlan:
    found = log.plan_compaction(now_ms)
    assert found is not None
    return found


def compact(log: PartitionLog, now_ms: int = NOW) -> CompactionResult:
    sync(log)
    result = plan(log, now_ms).run()
    for path in log.install(result):
        Path(path).unlink()
    return result


def roll(log: PartitionLog) -> None:
    """Close the last segment, so that what is in it can be compacted."""
    before = log.segment_count
    while log.segment_count == before:
        put(log, (b"filler", bytes(100)))


def contents(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """All records but those that ``roll`` adds."""
    return [(each.offset, each.key, each.value) for each in read_all(log) if each.key != b"filler"]


def test_the_latest_record_of_each_key_stays(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    put(log, (b"c", b"4"), (b"b", b"5"))
    roll(log)
    result = compact(log)
    assert contents(log) == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]
    assert result.bytes_after < result.bytes_before
    assert log.size_bytes < result.bytes_before + 700
    put(log, (b"a", b"6"))
    roll(log)
    compact(log)
    assert [each[1:] for each in contents(log)] == [(b"c", b"4"), (b"b", b"5"), (b"a", b"6")]


def test_what_is_in_the_last_segment_or_not_durable_stays(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    assert log.plan_compaction(NOW) is None, "nothing is closed"
    roll(log)
    assert log.plan_compaction(NOW) is None, "nothing is durable"
    put(log, (b"a", b"3"))
    compact(log)
    assert [each[2] for each in contents(log)] == [b"2", b"3"]


def test_a_clean_log_is_left_alone(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    compact(log)
    assert log.plan_compaction(NOW) is None
    log.close(clean=True)
    assert open_compacted(tmp_path / "t-0").plan_compaction(NOW) is None, "also after a restart"


def test_the_dirty_ratio_decides(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", min_cleanable_dirty_ratio=0.6)
    for number in range(12):
        put(log, (b"key-%d" % number, bytes(100)))
    roll(log)
    compact(log)
    put(log, (b"key-1", bytes(100)))
    roll(log)
    sync(log)
    assert log.plan_compaction(NOW) is None
    for number in range(30):
        put(log, (b"key-%d" % number, bytes(100)))
    sync(log)
    assert log.plan_compaction(NOW) is not None


def test_a_long_wait_decides_too(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), (b"a", b"2"))
    sync(log)
    assert log.plan_compaction(NOW) is None
    assert log.maintain(NOW + 999).rolled is False
    assert log.maintain(NOW + 1000).rolled is True
    sync(log)
    assert log.plan_compaction(NOW + 1000) is None
    assert log.plan_compaction(NOW + 1002) is not None


def test_young_records_stay_as_they_are(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", min_compaction_lag_ms=1000)
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    sync(log)
    assert log.plan_compaction(NOW + 900) is None
    compact(log, NOW + 1001)
    assert [each[2] for each in contents(log)] == [b"2"]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(tmp_path: Path, codec: Codec) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"x" * 50), (b"b", b"y" * 50), (b"a", b"z" * 50), codec=codec)
    roll(log)
    compact(log)
    assert contents(log) == [(1, b"b", b"y" * 50), (2, b"a", b"z" * 50)]
    assert {header.codec for _, header in iter_headers(log.read(0, 1 << 20).read())} >= {codec}


def test_records_keep_their_bytes(tmp_path: Path) -> None:
    headers = (("name", b"value"), ("none", None))
    records = [
        RecordData(0, NOW + 5, b"a", b"1", headers),
        RecordData(1, NOW - 7, b"b", None, headers),
        RecordData(2, NOW + 3, b"a", b"", headers),
    ]
    log = open_compacted(tmp_path / "t-0")
    log.append(encode_batch(records), NOW)
    roll(log)
    compact(log)
    assert [record for record in read_all(log) if record.key != b"filler"] == records[1:]
    assert log.offset_for_timestamp(NOW + 2) == (2, NOW + 3)


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=300)
    log.append(encode_batch([RecordData(0, NOW, None, bytes(100)), RecordData(1, NOW, b"a", b"1")]), NOW)
    log.close(clean=True)
    log = open_compacted(tmp_path / "t-0")
    roll(log)
    compact(log)
    assert contents(log) == [(1, b"a", b"1")]


# -- tombstones


def test_tombstones_go_after_delete_retention(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", delete_retention_ms=DAY_MS)
    put(log, (b"a", b"1"), (b"b", b"2"))
    put(log, (b"a", None), (b"c", b"3"))
    roll(log)
    compact(log, NOW)
    assert contents(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3")]
    assert [record.timestamp for record in read_all(log)][:3] == [NOW + 1, NOW, NOW + 1], "times stay"
    roll(log)
    compact(log, NOW + DAY_MS - 1)
    assert (2, b"a", None) in contents(log)
    roll(log)
    compact(log, NOW + DAY_MS)
    assert contents(log) == [(1, b"b", b"2"), (3, b"c", b"3")]


def test_a_tombstone_waits_from_its_first_cleaning(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", delete_retention_ms=1000)
    put(log, (b"a", None))
    roll(log)
    compact(log, NOW + 50_000)
    assert contents(log) == [(0, b"a", None)]
    roll(log)
    compact(log, NOW + 51_000)
    assert contents(log) == []


# -- offsets, segments and producers


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    for number in range(40):
        put(log, (b"key-%d" % (number % 3), bytes(60)))
    before = log.segment_count
    for _ in range(3):
        roll(log)
        compact(log)
    assert log.segment_count < before / 2
    for offset in range(log.end_offset):
        header = next(header for _, header in iter_headers(log.read(offset, 1).read()))
        assert header.last_offset >= offset


@pytest.mark.parametrize("clean", [True, False])
def test_a_compacted_log_opens_again(tmp_path: Path, clean: bool) -> None:
    log = open_compacted(tmp_path / "t-0")
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number))
    compact(log)
    for number in range(60, 70):
        put(log, (b"key-%d" % (number % 7), b"%d" % number))
    before = contents(log)
    log.close(clean=clean)
    again = open_compacted(tmp_path / "t-0", clean=clean)
    assert contents(again) == before
    assert again.recovery.cut_bytes == 0
    assert again.end_offset == 70


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lose_snapshots", [True, False])
def test_producers_are_known_though_all_their_records_are_gone(
    tmp_path: Path, clean: bool, lose_snapshots: bool
) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"1"), (b"b", b"1"), producer_id=9, producer_epoch=2, base_sequence=10)
    put(log, (b"a", b"2"), (b"b", b"2"))
    roll(log)
    compact(log)
    assert [each[2] for each in contents(log)] == [b"2", b"2"]
    log.close(clean=clean)
    if lose_snapshots:
        for path in (tmp_path / "t-0").glob("*.snapshot"):
            path.unlink()
    again = open_compacted(tmp_path / "t-0", clean=clean)
    late = keyed([(b"a", b"3")], producer_id=9, producer_epoch=2, base_sequence=14)
    with pytest.raises(OutOfOrderSequenceNumberError):
        again.append(late, NOW)
    duplicate = keyed([(b"a", b"1"), (b"b", b"1")], producer_id=9, producer_epoch=2, base_sequence=10)
    assert again.append(duplicate, NOW).duplicate
    put(again, (b"a", b"3"), producer_id=9, producer_epoch=2, base_sequence=12)


def test_too_many_keys_take_several_rounds(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    for number in range(60):
        put(log, (b"key-%d" % (number % 20), b"%d" % number))
    roll(log)
    sync(log)
    rounds = 0
    while (found := log.plan_compaction(NOW)) is not None:
        limited = CompactionPlan(
            **{name: getattr(found, name) for name in found.__dataclass_fields__} | {"max_keys": 6}
        )
        log.install(limited.run())
        rounds += 1
    assert rounds > 2
    assert contents(log) == [(40 + number, b"key-%d" % number, b"%d" % (40 + number)) for number in range(20)]


def test_readers_and_appends_go_on_during_a_compaction(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number))
    sync(log)
    held = log.read(0, 1 << 20)
    before = held.read()
    found, results = plan(log), list[CompactionResult]()
    thread = Thread(target=lambda: results.append(found.run()))
    thread.start()
    for number in range(60, 90):
        put(log, (b"key-%d" % (number % 7), b"%d" % number))
    thread.join()
    log.install(results[0])
    assert held.read() == before
    assert contents(log)[-30:] == [
        (number, b"key-%d" % (number % 7), b"%d" % number) for number in range(60, 90)
    ]


def test_segments_that_retention_took_meanwhile(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    for number in range(60):
        put(log, (b"key-%d" % (number % 7), b"%d" % number))
    sync(log)
    result = plan(log).run()
    log.delete_records(40)
    log.maintain(NOW)
    expected = contents(log)
    trash = log.install(result)
    assert any(path.endswith(".cleaned") for path in trash)
    for path in trash:
        Path(path).unlink(missing_ok=True)
    assert contents(log)[-len(expected) // 2 :] == expected[-len(expected) // 2 :]
    compact(log)
    assert {key for _, key, _ in contents(log)} == {b"key-%d" % number for number in range(7)}


def test_a_damaged_segment_is_not_compacted(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0")
    put(log, (b"a", b"1"), (b"a", b"2"))
    roll(log)
    sync(log)
    first = min((tmp_path / "t-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[70] ^= 1
    first.write_bytes(content)
    with pytest.raises(KafkaStorageError, match="cannot be compacted"):
        plan(log).run()


# -- crashes


def prepare(directory: Path, files: QuickFiles | CrashingFiles) -> tuple[PartitionLog, CompactionResult]:
    log = open_compacted(directory, files=files)
    for number in range(40):
        put(log, (b"key-%d" % (number % 5), b"%d" % number))
    sync(log)
    return log, plan(log).run()


@pytest.mark.parametrize("recovery_point", [0, 40])
def test_a_crash_before_every_step_of_the_swap(tmp_path: Path, recovery_point: int) -> None:
    log, result = prepare(tmp_path / "whole", CrashingFiles())
    before = contents(log)
    log.install(result)
    after = contents(log)
    assert len(result.cleaned) > 1
    outcomes, steps = set(), 0
    while True:
        files = CrashingFiles()
        directory = tmp_path / f"crash-{steps}"
        log, result = prepare(directory, files)
        files.changes, files.crash_before = 0, steps
        try:
            log.install(result)
            break
        except CrashingFiles.Crash:
            pass
        again = open_compacted(directory, clean=False, recovery_point=recovery_point)
        found = contents(again)
        assert set(after) <= set(found) <= set(before), f"crash before step {steps}"
        assert [each[0] for each in found] == sorted(each[0] for each in found)
        assert again.end_offset == 40
        outcomes.add(len(found))
        leftovers = [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
        assert leftovers == []
        steps += 1
    assert steps > 10
    assert {len(before), len(after)} <= outcomes


def test_a_swap_whose_indexes_did_not_get_to_the_disk(tmp_path: Path) -> None:
    log = open_compacted(tmp_path / "t-0", segment_bytes=2000)
    many = [(b"key-%d" % number, bytes(100)) for number in range(8)]
    for pair in [(b"a", b""), *many, (b"a", b""), (b"b", bytes(200)), (b"next segment", bytes(1000))]:
        put(log, pair)
    sync(log)
    plan(log).run()
    for path in (tmp_path / "t-0").glob("*.log.cleaned"):
        path.rename(path.with_suffix(".swap"))
    end = log.end_offset
    log.close(clean=False)
    again = open_compacted(tmp_path / "t-0", clean=False, recovery_point=end)
    appended = {record.offset: (record.key or b"", record.value) for record in read_all(again)}
    assert 0 not in appended and 1 in appended
    _check_compacted(again, appended, end)


@pytest.mark.parametrize("seed", range(16))
def test_power_cuts(tmp_path: Path, seed: int) -> None:
    """Every durable record is there, or a later one of its key is; nothing is there that was not appended."""
    random = Random(seed)
    files = PowerLossFiles(tmp_path / "disk-0")
    appended: dict[int, Pair] = {}
    durable = counter = start = 0
    log = open_compacted(Path(files.root) / "t-0", files=files)
    for life in range(1, 10):
        for _ in range(random.randint(5, 80)):
            action = random.random()
            if action < 0.9:
                key = b"key-%d" % random.randrange(6)
                value = None if random.random() < 0.2 else b"%d" % counter
                put(log, (key, value))
                appended[log.end_offset - 1] = (key, value)
                counter += 1
            else:
                sync(log)
                durable = log.durable_offset
                if (found := log.plan_compaction(NOW)) is not None:
                    result = found.run()
                    files.fuse = random.randint(0, 60) if random.random() < 0.5 else None
                    with suppress(PowerCut):
                        log.install(result)
                    if files.fuse is not None:
                        break
        files = files.after_power_loss(random, tmp_path / f"disk-{life}")
        point = random.choice([0, durable, random.randint(0, durable)])
        log = open_compacted(
            Path(files.root) / "t-0", files=files, clean=False, recovery_point=point, epoch_floor=life
        )
        assert durable <= start or log.start_offset == start
        start = log.start_offset  # what was never synced may be lost at the front too
        appended = {each: appended[each] for each in appended if log.start_offset <= each < log.end_offset}
        _check_compacted(log, appended, durable)


def _check_compacted(log: PartitionLog, appended: dict[int, Pair], durable: int) -> None:
    assert log.end_offset >= durable
    present = {record.offset: (record.key, record.value) for record in read_all(log)}
    assert present.items() <= appended.items()
    for offset in reversed(range(log.start_offset, log.end_offset)):  # by the index
        header = read_header(log.read(offset, 1).read())
        assert header.last_offset >= offset
        assert not any(header.base_offset > other >= offset for other in present)
    latest = {key: offset for offset, (key, _) in sorted(appended.items())}
    for offset, (key, _) in appended.items():
        assert offset in present or latest[key] in present
