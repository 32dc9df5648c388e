"""The metadata of a load's offset commits: who committed a group's offset, and for which sink.

It tells a load's own commits from others: an offset committed by anyone else is treated as a requested seek.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from millstream.model import RESET_METADATA, OffsetAndMetadata

_PREFIX: Final = "millstream-load"
_READ_COMMITTED: Final = ",read_committed"
_MOST_BYTES: Final = 1024
"""Brokers refuse more than 4096 by default (offset.metadata.max.bytes), and may be set to less."""

STARTING: Final = "start"
"""In place of a cycle's id: nothing was loaded yet, this is only where the load will start."""


class Author(Enum):
    """Who committed a group's offset."""

    NO_ONE = auto()
    """The group has no committed offset."""
    THIS_LOAD = auto()
    """A load into this sink, after a cycle."""
    THIS_LOAD_STARTING = auto()
    """A load into this sink, before its first cycle."""
    OTHER_LOAD = auto()
    """A load into another sink."""
    RESET = auto()
    """``millstream group reset``."""
    STRANGER = auto()
    """A consumer, or a tool of Kafka's."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Which cycle of a load, into which sink, and whether it reads only committed transactions, which decides
    how its lag is counted.
    """

    cycle_id: str
    sink: str
    read_committed: bool = False

    def __str__(self) -> str:
        text = f"{_PREFIX}:{self.cycle_id}{_READ_COMMITTED if self.read_committed else ''}:{self.sink}"
        return text.encode()[:_MOST_BYTES].decode(errors="ignore")


def read_commit_metadata(metadata: str) -> CommitMetadata | None:
    """What a load wrote; None for the metadata of others."""
    parts = metadata.split(":", 2)
    if len(parts) != 3 or parts[0] != _PREFIX:
        return None
    cycle_id = parts[1].removesuffix(_READ_COMMITTED)
    return CommitMetadata(cycle_id, parts[2], cycle_id != parts[1])


def author_of(committed: OffsetAndMetadata | None, *sink: str) -> Author:
    """Who committed this, seen from a load into ``sink``, by all of its names."""
    if committed is None:
        return Author.NO_ONE
    if committed.metadata == RESET_METADATA:
        return Author.RESET
    written = read_commit_metadata(committed.metadata)
    if written is None:
        return Author.STRANGER
    # A long sink name was truncated when it was written: truncate this one as well.
    if committed.metadata not in (str(replace(written, sink=name)) for name in sink):
        return Author.OTHER_LOAD
    return Author.THIS_LOAD_STARTING if written.cycle_id == STARTING else Author.THIS_LOAD
