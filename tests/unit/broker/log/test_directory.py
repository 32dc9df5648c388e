"""A data directory: its lock, its topics, and the logs of a thousand partitions."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.log.config import LogConfig
from millstream.broker.log.directory import DirectoryIdentity, LogDirectory, parse_partition_directory
from millstream.broker.log.files import Files
from millstream.broker.log.partition import PartitionLog
from millstream.broker.log.topic_store import StoredTopic, TopicStore, check_topic_name
from millstream.errors import ConfigError, DataDirectoryLockedError, InvalidTopicError, KafkaStorageError
from millstream.model import TopicPartition
from tests.unit.broker.log.faults import CountingFiles, FaultyFiles
from tests.unit.broker.log.support import NOW, QuickFiles, fill, make_batch, numbers, sync

IDENTITY = DirectoryIdentity("cluster", 1, "directory")


def open_directory(path: Path, **options: Any) -> LogDirectory:
    options.setdefault("files", QuickFiles())
    return LogDirectory.open(path, IDENTITY, now_ms=NOW, **options)


def topic(name: str, partitions: int = 1, number: int = 1, **configs: str) -> StoredTopic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return StoredTopic(name, number.to_bytes(16, "big"), partitions, named)


def log_of(directory: LogDirectory, name: str, partition: int = 0) -> PartitionLog:
    return directory.logs[TopicPartition(name, partition)]


def test_topics_and_logs_outlive_a_clean_restart(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 3, 1, retention_ms="5000"), topic("b.c_d-e", 1, 2)], NOW)
    fill(log_of(directory, "a", 2), 5)
    assert directory.close() == {}
    again = open_directory(tmp_path)
    assert again.was_clean
    assert again.recovered == {}
    assert sorted(map(str, again.logs)) == ["a-0", "a-1", "a-2", "b.c_d-e-0"]
    assert numbers(log_of(again, "a", 2)) == [0, 1, 2, 3, 4]
    assert log_of(again, "a").config.retention_ms == 5000
    assert again.topics.by_id((2).to_bytes(16, "big")) == topic("b.c_d-e", 1, 2)
    assert again.epoch_floor == 0


def test_a_crash_is_noticed(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 2)], NOW)
    fill(log_of(directory, "a"), 5)
    directory.close(clean=False)
    again = open_directory(tmp_path)
    assert not again.was_clean
    assert list(again.recovered) == [TopicPartition("a", 0)]
    assert numbers(log_of(again, "a")) == [0, 1, 2, 3, 4]
    assert again.epoch_floor == 1
    assert [log.leader_epoch for log in again.logs.values()] == [1, 1]


def test_a_clean_stop_counts_once(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    open_directory(tmp_path).close(clean=False)
    assert not open_directory(tmp_path).was_clean


def test_recovery_points_bound_the_scan(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a")], NOW)
    log = log_of(directory, "a")
    fill(log, 20, size=200_000)
    sync(log)
    directory.checkpoint()()
    fill(log, 2, start=20, size=200_000)
    directory.close(clean=False)
    files = CountingFiles()
    again = open_directory(tmp_path, files=files)
    assert log_of(again, "a").end_offset == 22
    assert log_of(again, "a").durable_offset == 20
    read = sum(count for path, count in files.bytes_read.items() if path.endswith(".log"))
    assert 400_000 < read < 410_000, "the last two batches, and headers"


def test_a_damaged_recovery_point_means_reading_everything(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a")], NOW)
    fill(log_of(directory, "a"), 3)
    directory.close(clean=False)
    for content in ("", "0\n1\nrubbish", "0\n1\na 0 x 00\n"):
        (tmp_path / "recovery-point-checkpoint").write_text(content)
        again = open_directory(tmp_path)
        assert numbers(log_of(again, "a")) == [0, 1, 2]
        again.close(clean=False)


def test_the_point_of_a_deleted_topic_does_not_hold_for_the_next(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 1, 1)], NOW)
    fill(log_of(directory, "a"), 20)
    sync(log_of(directory, "a"))
    directory.checkpoint()()
    directory.delete_topic("a")
    directory.create_topics([topic("a", 1, 2)], NOW)
    fill(log_of(directory, "a"), 3)
    directory.close(clean=False)
    (log_file,) = (tmp_path / "a-0").glob("*.log")
    log_file.write_bytes(log_file.read_bytes()[:-1] + b"x")
    again = open_directory(tmp_path)
    assert numbers(log_of(again, "a")) == [0, 1]
    assert again.recovered[TopicPartition("a", 0)].missing_offsets == 0


# -- the lock and the identity


def test_a_second_broker_is_told_who_has_the_directory(tmp_path: Path) -> None:
    holder = """
import sys, time
from millstream.broker.log.directory import DirectoryIdentity, LogDirectory
directory = LogDirectory.open(sys.argv[1], DirectoryIdentity("c", 1, "d"), now_ms=0)
print("open", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", holder, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(DataDirectoryLockedError, match=f"process {process.pid}") as caught:
            open_directory(tmp_path / "data")
        assert str(tmp_path / "data") in str(caught.value)
        process.communicate()
    open_directory(tmp_path / "data").close()


def test_the_lock_ends_with_the_directory(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    with pytest.raises(DataDirectoryLockedError):
        open_directory(tmp_path)
    directory.close()
    open_directory(tmp_path)


def test_the_identity_stays(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    again = LogDirectory.open(
        tmp_path, DirectoryIdentity("other", 1, "other"), now_ms=NOW, files=QuickFiles()
    )
    assert again.identity == IDENTITY
    again.close()
    with pytest.raises(ConfigError, match="belongs to node 1, not to node 2"):
        LogDirectory.open(tmp_path, replace(IDENTITY, node_id=2), now_ms=NOW)


@pytest.mark.parametrize("name", ["meta.properties", "topics.json", "epoch-floor"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a")], NOW)
    fill(log_of(directory, "a"), 1)
    directory.close(clean=False)
    open_directory(tmp_path).close(clean=False)
    (tmp_path / name).write_text("rubbish")
    with pytest.raises(KafkaStorageError, match=name):
        open_directory(tmp_path)
    assert (tmp_path / "a-0").exists()


@pytest.mark.parametrize("name", ["meta.properties", "topics.json"])
def test_logs_without_an_essential_file_are_not_touched(tmp_path: Path, name: str) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a")], NOW)
    fill(log_of(directory, "a"), 1)
    directory.close()
    (tmp_path / name).unlink()
    with pytest.raises(KafkaStorageError, match=f"has logs but no {name}"):
        open_directory(tmp_path)
    assert (tmp_path / "a-0").exists()


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(KafkaStorageError, match="cannot be opened"):
        open_directory(tmp_path / "data")


def test_one_damaged_log_does_not_stop_the_others(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 2)], NOW)
    for log in directory.logs.values():
        fill(log, 2)
        log.delete_records(1)
    directory.close()
    (tmp_path / "a-0" / "log-start-offset-checkpoint").write_text("rubbish")
    again = open_directory(tmp_path)
    assert list(again.failed) == [TopicPartition("a", 0)]
    assert numbers(log_of(again, "a", 1)) == [1]
    assert list(again.close()) == [TopicPartition("a", 0)]
    assert not open_directory(tmp_path).was_clean


# -- topics


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "a b", "ä", "a\0", "a\n", "x" * 250, "a:b", "a\\b", "-rf\n"]
)
def test_names_that_are_not_legal(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)
    directory = open_directory(tmp_path)
    with pytest.raises(InvalidTopicError):
        directory.create_topics([topic(name)], NOW)
    assert directory.logs == {}


@pytest.mark.parametrize("name", ["a", "...", "-", "a-1", "x" * 249, "__consumer_offsets", "A.b_c-9"])
def test_names_that_are_legal(tmp_path: Path, name: str) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic(name)], NOW)
    fill(log_of(directory, name), 1)
    assert directory.close() == {}
    again = open_directory(tmp_path)
    assert numbers(log_of(again, name)) == [0]
    for path in again.delete_topic(name):
        assert Path(path).parent == tmp_path


def test_directory_names() -> None:
    assert parse_partition_directory("a-1-0") == TopicPartition("a-1", 0)
    for other in ("a", "a-", "-1", "a-01", "a-x", "abc-1-delete", "topics.json", "a-1.tmp"):
        assert parse_partition_directory(other) is None


def test_a_deleted_topic_is_gone_and_may_come_again(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 2, 1), topic("ab", 1, 2)], NOW)
    for log in directory.logs.values():
        fill(log, 3)
    held = log_of(directory, "a").read(0, 1000)
    trash = directory.delete_topic("a")
    assert len(trash) == 2
    for path in trash:
        directory.files.remove_tree(path)
    assert held.read()
    directory.create_topics([topic("a", 1, 3)], NOW)
    assert log_of(directory, "a").end_offset == 0
    assert numbers(log_of(directory, "ab")) == [0, 1, 2]
    directory.close()
    assert sorted(map(str, open_directory(tmp_path).logs)) == ["a-0", "ab-0"]


def test_what_a_deleted_topic_left_is_put_out_at_the_next_start(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 2), topic("b", 1, 2)], NOW)
    for log in directory.logs.values():
        fill(log, 1)
    directory.topics.remove(["a"])  # and a crash before its directories are renamed
    directory.close(clean=False)
    (tmp_path / "0f-0-delete").mkdir()
    (tmp_path / "orphan-1-delete").mkdir()
    (tmp_path / "not-ours").mkdir()
    again = open_directory(tmp_path)
    trash = sorted(map(os.path.basename, again.trash))
    assert trash == ["0f-0-delete", "orphan-0-delete", "orphan-1-delete", "orphan-2-delete"]
    assert sorted(map(str, again.logs)) == ["b-0"]
    assert (tmp_path / "not-ours").exists()


def test_partitions_are_added(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 1, retention_ms="7")], NOW)
    directory.add_partitions("a", 3, NOW)
    fill(log_of(directory, "a", 2), 1)
    directory.close()
    again = open_directory(tmp_path)
    assert len(again.logs) == 3
    assert log_of(again, "a", 2).config.retention_ms == 7


def test_settings_are_changed_and_kept(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, defaults=LogConfig(segment_ms=99))
    directory.create_topics([topic("a", 2), topic("b", 1, 2)], NOW)
    directory.update_configs("a", {"retention.ms": "123"})
    assert [log.config.retention_ms for log in directory.logs.values()] == [123, 123, 604_800_000]
    with pytest.raises(ConfigError):
        directory.update_configs("a", {"retention.ms": "x"})
    directory.close()
    again = open_directory(tmp_path, defaults=LogConfig(segment_ms=98))
    assert (log_of(again, "a").config.retention_ms, log_of(again, "a").config.segment_ms) == (123, 98)
    again.update_configs("a", {})
    assert log_of(again, "a").config.retention_ms == 604_800_000


def test_a_full_disk_changes_no_topic(tmp_path: Path) -> None:
    files = FaultyFiles()
    directory = open_directory(tmp_path, files=files)
    directory.create_topics([topic("a")], NOW)
    files.faults.write_error = errno.ENOSPC
    with pytest.raises(KafkaStorageError):
        directory.create_topics([topic("b", 1, 2)], NOW)
    with pytest.raises(KafkaStorageError):
        directory.delete_topic("a")
    with pytest.raises(KafkaStorageError):
        directory.update_configs("a", {"retention.ms": "1"})
    files.faults.write_error = None
    assert sorted(map(str, directory.logs)) == ["a-0"]
    directory.create_topics([topic("b", 1, 2)], NOW)
    directory.close()
    again = open_directory(tmp_path)
    assert sorted(map(str, again.logs)) == ["a-0", "b-0"]
    assert log_of(again, "a").config.retention_ms == 604_800_000


@pytest.mark.parametrize(
    "changes",
    [
        ('"version": 1', '"version": 2'),
        ('"a"', '"a/b"'),
        ('"partitions": 1', '"partitions": 0'),
        ('"partitions": 1', '"partitions": true'),
        ('"x": "y"', '"x": 1'),
        ("-", "+"),
        ("{", "["),
    ],
)
def test_a_damaged_list_of_topics(tmp_path: Path, changes: tuple[str, str]) -> None:
    path = tmp_path / "topics.json"
    TopicStore(str(path), Files()).put([topic("a", 1, x="y")])
    assert len(TopicStore(str(path), Files())) == 1
    path.write_text(path.read_text().replace(*changes))
    with pytest.raises(KafkaStorageError, match=r"topics\.json is damaged"):
        TopicStore(str(path), Files())


def test_stored_settings_that_are_not_legal_any_more(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.topics.put([topic("a", 1, retention_ms="x")])
    directory.close()
    with pytest.raises(KafkaStorageError, match="topic a has an invalid setting"):
        open_directory(tmp_path)


# -- a thousand partitions


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_thousand_partitions(tmp_path: Path) -> None:
    others = open_files()
    directory = open_directory(tmp_path, open_segments=256)
    directory.create_topics([topic("a", 1000)], NOW)
    for log in directory.logs.values():
        log.append(make_batch(producer_id=1, producer_epoch=0, base_sequence=0), NOW)
        sync(log)
    assert open_files() - others < 330, "files are opened as they are needed"
    directory.close()
    for clean in (True, False):
        began = time.thread_time()
        directory = open_directory(tmp_path, open_segments=256)
        took = time.thread_time() - began
        assert directory.was_clean is clean or not clean
        assert all(log.end_offset == 1 for log in directory.logs.values())
        assert took < 2, f"opening took {took:.2f} s of CPU"
        assert open_files() - others < 330
        directory.close(clean=False)


def test_a_thousand_partitions_without_data_cost_nothing(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.create_topics([topic("a", 1000)], NOW)
    directory.close()
    assert len(list(tmp_path.iterdir())) < 8
    files = CountingFiles()
    assert len(open_directory(tmp_path, files=files).logs) == 1000
    assert not any("a-" in path for path in files.bytes_read)
