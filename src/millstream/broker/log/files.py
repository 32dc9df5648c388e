"""Every system call of the log, in one place that tests can replace.

Two rules make data survive a power cut: a file's bytes are durable after ``fdatasync``, and its name only
after ``sync_directory`` of its directory. A small file is therefore replaced as a whole
(``write_atomically``), so that a reader finds either the old or the new one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

from millstream.wire.records.primitives import Buffer

StrPath = str | os.PathLike[str]

TEMPORARY_SUFFIX = ".tmp"
"""Files of this name are leftovers of a crash: they are removed when a directory is opened."""


_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_CANNOT_FULL_SYNC = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)


def sync_descriptor(fd: int, *, with_metadata: bool = False) -> None:
    """Make a file or directory durable.

    On macOS ``fsync`` leaves data in the disk's own cache, which F_FULLFSYNC writes out, too. A file system
    without it, such as a mounted one of another machine, has ``fsync``.
    """
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(fd, _FULL_SYNC)
            return
        except OSError as error:
            if error.errno not in _CANNOT_FULL_SYNC:
                raise
    if with_metadata or not hasattr(os, "fdatasync"):
        os.fsync(fd)
    else:
        os.fdatasync(fd)


_REPORT_LOST_WRITES = ("ext4", "xfs")
_open_descriptors: set[int] = set()


def open_file_count() -> int:
    """How many files of logs this process has open."""
    return len(_open_descriptors)


def lacks_descriptors(error: OSError) -> bool:
    """Whether the process or the system has too many open files: it says nothing about the disk."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


@cache
def _file_system_of(device: int) -> str:
    """The type of the file system with this device number; empty where that is not known."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            mount, _, file_system = line.partition(" - ")
            if mount.split()[2] == number:
                return file_system.split()[0]
    return ""


class OpenFile:
    """An open file. It is closed when nothing refers to it any more, so it stays readable while held."""

    __slots__ = ("__weakref__", "_fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        _open_descriptors.add(fd)

    def __repr__(self) -> str:
        return f"OpenFile({self.path!r})"

    def fileno(self) -> int:
        return self._fd

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; fewer only at the end of the file."""
        data = os.pread(self._fd, length, position)
        while 0 < len(data) < length:
            more = os.pread(self._fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pwrite(self, data: Buffer, position: int) -> int:
        """Write at ``position``; return how many bytes were written, which may be fewer on a full disk."""
        return os.pwrite(self._fd, data, position)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def device(self) -> int:
        """The number of the file system that the file is on."""
        return os.fstat(self._fd).st_dev

    def reports_lost_writes(self) -> bool:
        """Whether syncing the whole file system is known to report failed writes: not through overlays."""
        return _file_system_of(self.device()) in _REPORT_LOST_WRITES

    def fdatasync(self) -> None:
        sync_descriptor(self._fd)

    def sync_filesystem(self) -> bool:
        """Make all that was written to the file's file system durable, by anyone; False if that is unsafe.

        Raises OSError if any write failed since this file was opened, whichever file it was for.
        """
        syncfs = _syncfs()
        if syncfs is None:
            return False
        if syncfs(self._fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self.path)
        return True

    def __del__(self) -> None:
        with suppress(OSError, AttributeError):
            _open_descriptors.discard(self._fd)
            os.close(self._fd)


class Files:
    """The real file system. Errors are OSError, as the system gives them."""

    def open(self, path: StrPath, *, create: bool = False) -> OpenFile:
        """Open for reading and writing."""
        name = os.fspath(path)
        return OpenFile(os.open(name, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644), name)

    def rename(self, old: StrPath, new: StrPath) -> None:
        os.rename(old, new)

    def unlink(self, path: StrPath) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def mkdir(self, path: StrPath) -> None:
        """Create a directory, unless it exists."""
        with suppress(FileExistsError):
            os.mkdir(path)

    def remove_tree(self, path: StrPath) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def sync_directory(self, path: StrPath) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_descriptor(fd, with_metadata=True)
        finally:
            os.close(fd)

    def make_private(self, path: StrPath) -> None:
        """Let only the owner read a file that was made when it was not private."""
        if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
            os.chmod(path, 0o600)

    def scan(self, path: StrPath) -> list[tuple[str, int]]:
        """Return the names in a directory, sorted, each with its size (-1 for what is not a plain file)."""
        with os.scandir(path) as entries:
            return sorted((entry.name, _size(entry)) for entry in entries)

    def listdir(self, path: StrPath) -> list[str]:
        return sorted(os.listdir(path))

    def lock(self, path: StrPath) -> OpenFile | None:
        """Create and lock a file while it is open; return None if another process holds the lock."""
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return file

    # -- built from the above

    def read(self, path: StrPath) -> bytes:
        """Return the contents of a file."""
        file = self.open(path)
        return file.pread(file.size(), 0)

    def write(self, path: StrPath, data: Buffer, *, private: bool = False) -> OpenFile:
        """Create or replace a file, not yet durably; return it open. A private one is for its owner only."""
        if private:
            self.unlink(path)
            os.close(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            )
        file = self.open(path, create=True)
        if file.size():
            file.truncate(0)
        if len(data):
            write_all(file, data, 0)
        return file

    def write_atomically(self, path: StrPath, data: Buffer, *, private: bool = False) -> None:
        """Replace a file durably: at every moment, and after a power cut, it is the old or the new one."""
        name = os.fspath(path)
        self.write(name + TEMPORARY_SUFFIX, data, private=private).fdatasync()
        self.rename(name + TEMPORARY_SUFFIX, name)
        self.sync_directory(os.path.dirname(name) or ".")


def write_all(file: OpenFile, data: Buffer, position: int) -> None:
    """Write all of ``data``, in several steps if the system takes only a part."""
    written = file.pwrite(data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        taken = file.pwrite(view[written:], position + written)
        if not taken:
            raise OSError(f"{file.path}: nothing could be written")
        written += taken


def read_in_chunks(file: OpenFile, start: int, end: int, chunk_bytes: int = 1 << 20) -> Iterator[bytes]:
    """Yield the bytes from ``start`` to ``end`` in chunks."""
    while start < end:
        chunk = file.pread(min(chunk_bytes, end - start), start)
        if not chunk:
            return
        yield chunk
        start += len(chunk)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """The system call, where it reports each failed write: Linux from 5.17 on. It runs without the GIL."""
    if sys.platform != "linux":
        return None
    try:
        version = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
        syncfs: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    except (ValueError, OSError, AttributeError):
        return None
    return syncfs if version >= (5, 17) else None


def _size(entry: os.DirEntry[str]) -> int:
    return entry.stat().st_size if entry.is_file(follow_symlinks=False) else -1
