"""Small files of numbers: a format version, and the numbers, each on a line."""

from __future__ import annotations

from millstream.broker.log.files import Files
from millstream.errors import KafkaStorageError

_FORMAT = "0"


def read(files: Files, path: str) -> list[int]:
    """Read the numbers in a file. Raises KafkaStorageError if it is damaged."""
    lines = files.read(path).decode("ascii", "replace").splitlines()
    if len(lines) < 2 or lines[0] != _FORMAT or not all(line.isdecimal() for line in lines):
        raise KafkaStorageError(f"{path} is damaged: restore it from a copy")
    return [int(line) for line in lines[1:]]


def write(files: Files, path: str, *numbers: int) -> None:
    """Replace a file durably."""
    lines = [_FORMAT, *map(str, numbers)]
    files.write_atomically(path, ("\n".join(lines) + "\n").encode())
