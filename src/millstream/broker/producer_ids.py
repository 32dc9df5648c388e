"""Assigns producer ids that are unique in a data directory, also across crashes.

Ids are reserved durably in blocks before the first of them is used. A crash wastes the rest of a block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.broker.log.files import Files
from millstream.errors import KafkaStorageError

_BLOCK: Final = 1000
_MAX_EPOCH: Final = 0x7FFF - 1
"""A producer beyond this epoch gets a new id; the largest epoch is never used, as in Kafka."""


class ProducerIds:
    """Assigns ids, one at a time."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._next = self._reserved = _read_reserved(path, files)

    def next(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """Return a new id with epoch 0, or the producer's own id with the next epoch (KIP-360)."""
        if 0 <= producer_id < self._next and 0 <= epoch < _MAX_EPOCH:
            return producer_id, epoch + 1
        if self._next == self._reserved:
            self._reserve_block()
        self._next += 1
        return self._next - 1, 0

    def _reserve_block(self) -> None:
        try:
            self._files.write_atomically(self._path, str(self._reserved + _BLOCK).encode())
        except OSError as error:
            raise KafkaStorageError(f"cannot reserve producer ids: {error}") from error
        self._reserved += _BLOCK


def _read_reserved(path: Path, files: Files) -> int:
    try:
        text = files.read(path)
    except FileNotFoundError:
        return 0
    if not text.isdigit():
        raise KafkaStorageError(f"{path} is damaged: it should hold one number, the next producer id")
    return int(text)
