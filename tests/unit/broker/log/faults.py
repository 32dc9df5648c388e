"""File layers that fail: on demand, and by losing their power."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

from millstream.broker.log.files import Files, OpenFile, StrPath
from millstream.wire.records.primitives import Buffer


class Faults:
    """What is to go wrong. Each setting holds until it is changed."""

    def __init__(self) -> None:
        self.write_error: int | None = None
        self.free_bytes: int | None = None  # until the disk is full
        self.most_per_write: int | None = None
        self.sync_error: int | None = None
        self.truncate_error: int | None = None
        self.create_error: int | None = None
        self.open_error: int | None = None


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class FaultyFile(OpenFile):
    __slots__ = ("_faults",)

    def __init__(self, fd: int, path: str, faults: Faults) -> None:
        super().__init__(fd, path)
        self._faults = faults

    def pwrite(self, data: Buffer, position: int) -> int:
        faults = self._faults
        if faults.write_error is not None:
            raise _error(faults.write_error)
        taken = memoryview(data)
        if faults.most_per_write is not None:
            taken = taken[: faults.most_per_write]
        if faults.free_bytes is not None:
            taken = taken[: faults.free_bytes]
            if not len(taken):
                raise _error(errno.ENOSPC)
            faults.free_bytes -= len(taken)
        return super().pwrite(taken, position)

    def truncate(self, size: int) -> None:
        if self._faults.truncate_error is not None:
            raise _error(self._faults.truncate_error)
        super().truncate(size)

    def fdatasync(self) -> None:
        if self._faults.sync_error is not None:
            raise _error(self._faults.sync_error)
        super().fdatasync()


class FaultyFiles(Files):
    """The real file system, as long as nothing is to go wrong."""

    def __init__(self) -> None:
        self.faults = Faults()

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        if create and self.faults.create_error is not None and not os.path.exists(path):
            raise _error(self.faults.create_error)
        if self.faults.open_error is not None:
            raise _error(self.faults.open_error)
        plain = super().open(path, create=create)
        return FaultyFile(os.dup(plain.fileno()), plain.path, self.faults)


class CountingFiles(Files):
    """The real file system, which remembers what was read from which file."""

    def __init__(self) -> None:
        self.bytes_read: dict[str, int] = {}

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        plain = super().open(path, create=create)
        return _CountingFile(os.dup(plain.fileno()), plain.path, self.bytes_read)


class _CountingFile(OpenFile):
    __slots__ = ("_bytes_read",)

    def __init__(self, fd: int, path: str, bytes_read: dict[str, int]) -> None:
        super().__init__(fd, path)
        self._bytes_read = bytes_read

    def pread(self, length: int, position: int) -> bytes:
        data = super().pread(length, position)
        self._bytes_read[self.path] = self._bytes_read.get(self.path, 0) + len(data)
        return data


class CrashingFiles(Files):
    """Stops before a certain change to the file system: ``Crash`` is raised, and nothing is done."""

    class Crash(BaseException):
        """Not an error that anybody handles."""

    def __init__(self, crash_before: int | None = None) -> None:
        self.changes = 0
        self.crash_before = crash_before

    def _change(self) -> None:
        if self.changes == self.crash_before:
            raise self.Crash
        self.changes += 1

    def rename(self, old: StrPath, new: StrPath) -> None:
        self._change()
        super().rename(old, new)

    def unlink(self, path: StrPath) -> None:
        self._change()
        super().unlink(path)

    def sync_directory(self, path: StrPath) -> None:
        self._change()
        super().sync_directory(path)


# -- power loss


class _Node:
    """A file: what is on the disk, and what was done to it since."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.pending: list[tuple[int, bytes | None]] = []  # a write at a position; None truncates there

    def after_power_loss(self, random: Random) -> bytes:
        content = bytearray(self.durable)
        in_order = random.random() < 0.7
        survive = random.randrange(len(self.pending) + 1) if self.pending else 0
        for index, (position, data) in enumerate(self.pending):
            if index >= survive if in_order else random.random() < 0.5:
                if in_order and index == survive and data is not None:
                    _apply(content, position, data[: random.randrange(len(data) + 1)])  # torn
                continue
            _apply(content, position, data)
        return bytes(content)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del content[position:]
        content.extend(bytes(position - len(content)))
    elif data:
        content.extend(bytes(max(0, position - len(content))))
        content[position : position + len(data)] = data


class _Directory:
    """The names in a directory: those on the disk, and what was done to them since."""

    def __init__(self) -> None:
        self.names: dict[str, _Node | _Directory] = {}
        self.durable: dict[str, _Node | _Directory] = {}
        self.pending: list[tuple[str | None, str | None, _Node | _Directory]] = []  # old name, new name

    def change(self, old: str | None, new: str | None) -> None:
        entry = self.names.pop(old) if old is not None else _Node()
        self.put(old, new, entry)

    def put(self, old: str | None, new: str | None, entry: _Node | _Directory) -> None:
        if new is not None:
            self.names[new] = entry
        self.pending.append((old, new, entry))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending = []

    def after_power_loss(self, random: Random) -> dict[str, _Node | _Directory]:
        names = dict(self.durable)
        in_order = random.random() < 0.7
        survive = random.randrange(len(self.pending) + 1) if self.pending else 0
        for index, (old, new, entry) in enumerate(self.pending):
            if index >= survive if in_order else random.random() < 0.5:
                continue
            if old is not None and names.get(old) is entry:
                del names[old]
            if new is not None:
                names[new] = entry
        return names


class _PowerFile(OpenFile):
    __slots__ = ("_files", "_node")

    def __init__(self, fd: int, path: str, node: _Node, files: PowerLossFiles) -> None:
        super().__init__(fd, path)
        self._node = node
        self._files = files

    def pwrite(self, data: Buffer, position: int) -> int:
        self._files.change()
        self._node.pending.append((position, bytes(data)))
        return super().pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._files.change()
        self._node.pending.append((size, None))
        super().truncate(size)

    def fdatasync(self) -> None:
        self._files.change()
        if self._files.skip_file_syncs:
            return
        content = bytearray(self._node.durable)
        for position, data in self._node.pending:
            _apply(content, position, data)
        self._node.durable = bytes(content)
        self._node.pending = []


class NothingSurvives(Random):
    """Chance at its worst: of what was not synced, nothing gets to the disk."""

    def random(self) -> float:
        return 0.0

    def randrange(self, *_: object) -> int:
        return 0


class PowerCut(BaseException):
    """The power is gone. Not an error that anybody handles."""


class PowerLossFiles(Files):
    """Files below a root directory whose power can be cut: what was not synced is lost, wholly or in part.

    With a ``fuse`` of n, the nth change from now raises PowerCut instead of being done.
    ``skip_file_syncs`` and ``skip_directory_syncs`` plant bugs, to see that tests find them.
    """

    skip_file_syncs = False
    skip_directory_syncs = False
    fuse: int | None = None

    def __init__(self, root: Path) -> None:
        self.root = os.fspath(root)
        os.makedirs(self.root, exist_ok=True)
        self._top = self._scan(self.root)

    def change(self) -> None:
        """Burn the fuse by one change."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise PowerCut

    def _scan(self, path: str) -> _Directory:
        directory = _Directory()
        for entry in os.scandir(path):
            found = self._scan(entry.path) if entry.is_dir() else _Node(Path(entry.path).read_bytes())
            directory.names[entry.name] = found
        directory.sync()
        return directory

    def _parts(self, path: StrPath) -> Iterator[str]:
        relative = os.path.relpath(os.fspath(path), self.root)
        return iter([] if relative == "." else relative.split(os.sep))

    def _directory(self, path: StrPath) -> _Directory:
        directory = self._top
        for part in self._parts(path):
            child = directory.names[part]
            assert isinstance(child, _Directory)
            directory = child
        return directory

    def _split(self, path: StrPath) -> tuple[_Directory, str]:
        head, name = os.path.split(os.fspath(path))
        return self._directory(head), name

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        plain = super().open(path, create=create)
        directory, name = self._split(path)
        if name not in directory.names:
            directory.change(None, name)
        node = directory.names[name]
        assert isinstance(node, _Node)
        return _PowerFile(os.dup(plain.fileno()), plain.path, node, self)

    def rename(self, old: StrPath, new: StrPath) -> None:
        self.change()
        super().rename(old, new)
        directory, old_name = self._split(old)
        assert directory is self._split(new)[0]
        directory.change(old_name, os.path.basename(os.fspath(new)))

    def unlink(self, path: StrPath) -> None:
        self.change()
        super().unlink(path)
        directory, name = self._split(path)
        if name in directory.names:
            directory.change(name, None)

    def mkdir(self, path: StrPath) -> None:
        super().mkdir(path)
        parent, name = self._split(path)
        if name not in parent.names:
            parent.put(None, name, _Directory())

    def remove_tree(self, path: StrPath) -> None:
        super().remove_tree(path)
        parent, name = self._split(path)
        if name in parent.names:
            parent.change(name, None)

    def sync_directory(self, path: StrPath) -> None:
        self.change()
        if not self.skip_directory_syncs:
            self._directory(path).sync()

    def durable_names(self, path: StrPath) -> set[str]:
        """The names in a directory that would be there after a power cut, whatever happens."""
        return set(self._directory(path).durable)

    def after_power_loss(self, random: Random, new_root: Path) -> PowerLossFiles:
        """What the disk holds after a power cut, in another directory."""
        self._write(self._top, os.fspath(new_root), random)
        return PowerLossFiles(new_root)

    def _write(self, directory: _Directory, path: str, random: Random) -> None:
        os.makedirs(path)
        for name, entry in directory.after_power_loss(random).items():
            target = os.path.join(path, name)
            if isinstance(entry, _Directory):
                self._write(entry, target, random)
            else:
                Path(target).write_bytes(entry.after_power_loss(random))
