"""The files of a log that are not synced yet, and the tickets that sync them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from millstream.broker.log.files import Files, OpenFile


@dataclass(slots=True, eq=False)
class SyncTicket:
    """What must be synced so that everything before ``end_offset`` is durable."""

    files: Files
    targets: dict[str, OpenFile | None]
    directories: list[str]
    end_offset: int
    cuts: int
    """How often the log had been cut when the ticket was taken: a later cut makes it void."""

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.targets or self.directories)

    def sync(self) -> None:
        """Wait for the disk, on any thread. Raises OSError, and must then not be retried.

        Only if there was no descriptor (``lacks_descriptors``) call it again: it goes on with what is left.
        Each file is let go as soon as it is synced, so that opening the next one finds a descriptor.
        """
        for path in sorted(self.targets, key=lambda path: self.targets[path] is None):
            with suppress(FileNotFoundError):  # deleted meanwhile
                (self.targets[path] or self.files.open(path)).fdatasync()
            del self.targets[path]
        while self.directories:
            self.files.sync_directory(self.directories[0])
            del self.directories[0]


def sync_together(anchor: OpenFile, tickets: Iterable[SyncTicket]) -> bool:
    """Sync many tickets by one sync of the file system that ``anchor`` and all of their files are on.

    A thousand files take a thousand commits of the file system's journal otherwise. False: nothing was done.
    Raises OSError if a write failed: then, and ever after, sync each ticket, as a file reports its own lost
    writes, and the file system reports each only once, to whoever asks first.
    """
    device = anchor.device()
    for ticket in tickets:
        for file in ticket.targets.values():
            if file is None or file.device() != device:
                return False
    return anchor.sync_filesystem()


class Unsynced:
    """The files and directories that were changed since the last ticket.

    A written file stays open until it is synced: the system reports a failed write-back only to processes
    that had the file open. Files that a crash left behind are known by their path only.
    """

    __slots__ = ("_directories", "_files", "_targets")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._targets: dict[str, OpenFile | None] = {}
        self._directories: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._targets or self._directories)

    def __len__(self) -> int:
        """How many files are kept open."""
        return sum(file is not None for file in self._targets.values())

    def add(self, file: OpenFile) -> None:
        if self._targets.get(file.path) is None:
            self._targets[file.path] = file

    def add_path(self, path: str) -> None:
        self._targets.setdefault(path, None)

    def add_directory(self, directory: str) -> None:
        if directory not in self._directories:
            self._directories.append(directory)

    def discard(self, path: str) -> None:
        """Forget a file that is no longer part of the log."""
        self._targets.pop(path, None)

    def clear(self) -> None:
        self._targets, self._directories = {}, []

    def sync_directories(self) -> None:
        """Make the names durable now, before the data."""
        while self._directories:
            self._files.sync_directory(self._directories[0])
            del self._directories[0]

    def take(self, end_offset: int, cuts: int) -> SyncTicket:
        """Return a ticket for all of it; later changes belong to the next one."""
        ticket = SyncTicket(self._files, self._targets, self._directories, end_offset, cuts)
        self.clear()
        return ticket
