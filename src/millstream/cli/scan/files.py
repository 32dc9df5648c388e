"""Files that appear whole: written beside their place, synced, and renamed."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from millstream.terminal.outcome import CommandError
from millstream.terminal.private_files import sync_directory


class DroppableSink(io.RawIOBase):
    """Passes bytes on to a file until it is dropped.

    Arrow's writers end a file when they are destroyed, also after an error: it must not look complete then.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:
        if self._file is not None:
            self._file.write(data)
        length = memoryview(data).nbytes
        self._written += length
        return length

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def drop(self) -> None:
        """Discard what is still written."""
        self._file = None


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes its name when the block ends well, and is deleted otherwise.

    What is no regular file, such as a pipe or /dev/null, is written directly.
    """
    path = Path(os.path.realpath(path))  # a link stays one
    try:
        mode: int | None = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode):
            raise CommandError(f"{path} is a directory: name a file in it")
        with path.open("wb") as direct:
            yield direct
        return
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(path.parent)


def _umask() -> int:
    """The process's mask of permissions, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
