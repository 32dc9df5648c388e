"""A slice of an open file, passed from the log to the socket without reading it."""

from __future__ import annotations

import os
from typing import Protocol


class HoldsFile(Protocol):
    """An owner of an open file descriptor. The file stays open as long as the owner is referenced."""

    def fileno(self) -> int: ...


class FileSlice:
    """``length`` bytes of a file from ``offset`` on.

    A slice keeps its file open, also if the file is deleted or replaced meanwhile. Its bytes never change:
    logs only grow at the end, and what is cut off there was never reported as durable.
    """

    __slots__ = ("holder", "length", "offset")

    def __init__(self, holder: HoldsFile | None, offset: int, length: int) -> None:
        assert length == 0 or holder is not None, "only an empty slice has no file"
        self.holder = holder
        self.offset = offset
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice(offset={self.offset}, length={self.length})"

    def fileno(self) -> int:
        """Return the descriptor to send from; -1 for an empty slice."""
        return -1 if self.holder is None else self.holder.fileno()

    def read(self) -> bytes:
        """Return the bytes, copied. Raises EOFError if the file was truncated."""
        if not self.length:
            return b""
        chunks: list[bytes] = []
        done = 0
        while done < self.length:
            chunk = os.pread(self.fileno(), self.length - done, self.offset + done)
            if not chunk:
                raise EOFError(
                    f"file ends at byte {self.offset + done}, inside a slice of {self.length} bytes"
                )
            chunks.append(chunk)
            done += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def after(self, count: int) -> FileSlice:
        """Return the slice without its first ``count`` bytes."""
        return FileSlice(self.holder, self.offset + count, self.length - count)


EMPTY_SLICE = FileSlice(None, 0, 0)
