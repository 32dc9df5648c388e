"""Few descriptors: files that wait to be synced count, and a lack of descriptors is not a failing disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from millstream.broker.log.files import open_file_count
from millstream.broker.log.segments.file_pool import FilePool
from millstream.errors import KafkaStorageError
from tests.unit.broker.log.faults import FaultyFiles
from tests.unit.broker.log.support import QuickFiles, fill, numbers, open_log, sync


def test_what_waits_to_be_synced_takes_room_until_it_is_synced(tmp_path: Path) -> None:
    pool = FilePool(QuickFiles(), capacity=2)
    calls: list[int] = []
    pool.on_crowded = lambda: calls.append(open_file_count())
    before = open_file_count()
    pool.share = before + 6
    logs = [open_log(tmp_path / str(number), pool=pool) for number in range(20)]
    for log in logs[:6]:
        fill(log, 1)
    assert open_file_count() == before + 6
    assert calls
    with pytest.raises(KafkaStorageError, match=r"too many files wait to be synced.*ulimit -n"):
        fill(logs[6], 1)
    fill(logs[0], 1, start=1)  # its file is open
    assert open_file_count() == before + 6
    for log in logs[:6]:
        sync(log)
    for log in logs[6:10]:
        fill(log, 1)
    assert [numbers(log) for log in logs[:7]] == [[0, 1], *[[0]] * 6]


def test_a_file_that_waits_to_be_synced_is_not_opened_again(tmp_path: Path) -> None:
    pool = FilePool(QuickFiles(), capacity=1)
    logs = [open_log(tmp_path / str(number), pool=pool) for number in range(3)]
    before = open_file_count()
    for start in range(4):
        for log in logs:
            fill(log, 1, start=start)
    assert open_file_count() == before + 3
    assert [numbers(log) for log in logs] == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_log_without_a_descriptor_goes_on_when_there_is_one(tmp_path: Path, number: int) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path / "t-0", files=files)
    files.faults.create_error = number
    with pytest.raises(KafkaStorageError):
        fill(log, 1)
    files.faults.create_error = None
    fill(log, 2)
    sync(log)
    assert numbers(log) == [0, 1] and log.leader_epoch == 0


def test_a_ticket_without_a_descriptor_goes_on_with_the_rest(tmp_path: Path) -> None:
    """The list of leader epochs is known by its path, and must be opened to be synced."""
    files = FaultyFiles()
    log = open_log(tmp_path / "t-0", files=files)
    fill(log, 1)
    ticket = log.take_unsynced()
    assert None in ticket.targets.values()
    files.faults.open_error = errno.EMFILE
    with pytest.raises(OSError, match="Too many open files"):
        ticket.sync()
    assert not any(ticket.targets.values()), "what is synced is let go"
    files.faults.open_error = None
    ticket.sync()
    log.synced(ticket)
    assert log.durable_offset == 1 and numbers(log) == [0]


def test_a_deleted_log_keeps_no_file_open_that_was_never_synced(tmp_path: Path) -> None:
    before = open_file_count()
    log = open_log(tmp_path / "t-0")
    fill(log, 1)
    log.close(clean=False)
    assert open_file_count() == before, f"while something still refers to {log}"
    assert not log.has_unsynced
