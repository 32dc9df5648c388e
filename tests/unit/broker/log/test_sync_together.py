"""Many tickets, one sync of the file system: only where that is as safe as a sync of each."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from millstream.broker.log import files as files_module
from millstream.broker.log.directory import DirectoryIdentity, LogDirectory
from millstream.broker.log.durability import SyncTicket, Unsynced, sync_together
from millstream.broker.log.files import Files, OpenFile


class Elsewhere(OpenFile):
    """A file on another file system."""

    def device(self) -> int:
        return super().device() + 1


def anchor_and_tickets(place: Path) -> tuple[OpenFile, list[SyncTicket]]:
    files = Files()
    tickets = []
    for name in ("a", "b", "c"):
        unsynced = Unsynced(files)
        unsynced.add(files.write(place / name, b"records"))
        tickets.append(unsynced.take(7, 0))
    return files.open(place / "lock", create=True), tickets


@pytest.mark.skipif(files_module._syncfs() is None, reason="needs syncfs that reports errors")
def test_one_sync_covers_all(tmp_path: Path) -> None:
    anchor, tickets = anchor_and_tickets(tmp_path)
    assert sync_together(anchor, tickets)


def test_not_where_a_file_is_on_another_file_system(tmp_path: Path) -> None:
    anchor, tickets = anchor_and_tickets(tmp_path)
    other = Files().open(tmp_path / "a")
    tickets[1].targets["a"] = Elsewhere(os.dup(other.fileno()), "a")
    assert not sync_together(anchor, tickets)


def test_not_where_a_file_is_known_by_its_path_only(tmp_path: Path) -> None:
    anchor, tickets = anchor_and_tickets(tmp_path)
    tickets[2].targets["left by a crash"] = None
    assert not sync_together(anchor, tickets)


def test_a_failure_leaves_it_to_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor, tickets = anchor_and_tickets(tmp_path)

    def fails(file: OpenFile) -> bool:
        raise OSError(errno.EIO, "a write has failed")

    monkeypatch.setattr(OpenFile, "sync_filesystem", fails)
    with pytest.raises(OSError, match="a write has failed"):
        sync_together(anchor, tickets)
    for ticket in tickets:
        ticket.sync()


def test_a_system_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor, tickets = anchor_and_tickets(tmp_path)
    monkeypatch.setattr(files_module, "_syncfs", lambda: None)
    assert not sync_together(anchor, tickets)


def test_after_a_failure_each_file_is_asked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system tells of a lost write once: the next answer is that all is well."""
    _, tickets = anchor_and_tickets(tmp_path)
    failures = [OSError(errno.EIO, "a write has failed")]

    def answer(file: OpenFile) -> bool:
        if failures:
            raise failures.pop()
        return True

    monkeypatch.setattr(OpenFile, "sync_filesystem", answer)
    monkeypatch.setattr(OpenFile, "reports_lost_writes", lambda file: True)
    directory = LogDirectory.open(tmp_path / "data", DirectoryIdentity("c", 1, "d"), now_ms=0)
    assert not directory.sync_together(tickets)
    assert not directory.sync_together(tickets)
    directory.close()
