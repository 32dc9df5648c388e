"""What a load writes beside the offsets that it commits to its group, and how others' notes are read.

The note tells a load's own commits from everybody else's: only what is not its own is a wish to be followed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from millstream.model import RESET_METADATA, OffsetAndMetadata

_PREFIX: Final = "millstream-load"
_READ_COMMITTED: Final = ",read_committed"
_MOST_BYTES: Final = 1024
"""Of a note: brokers refuse more than 4096 by default, and may be set to less."""

STARTING: Final = "start"
"""In place of a cycle's id: nothing was loaded yet, this is only where it shall begin."""


class Author(Enum):
    """Who committed a group's offset."""

    NO_ONE = auto()
    """There is none."""
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
    """A load's note: which cycle, into which sink, and whether it reads only what is committed, for whoever
    wants to know how far behind it is.
    """

    cycle_id: str
    sink: str
    read_committed: bool = False

    def __str__(self) -> str:
        text = f"{_PREFIX}:{self.cycle_id}{_READ_COMMITTED if self.read_committed else ''}:{self.sink}"
        return text.encode()[:_MOST_BYTES].decode(errors="ignore")


def read_commit_metadata(metadata: str) -> CommitMetadata | None:
    """A load's note; None if it is not one."""
    parts = metadata.split(":", 2)
    if len(parts) != 3 or parts[0] != _PREFIX:
        return None
    cycle_id = parts[1].removesuffix(_READ_COMMITTED)
    return CommitMetadata(cycle_id, parts[2], cycle_id != parts[1])


def author_of(committed: OffsetAndMetadata | None, sink: str) -> Author:
    """Who committed this, seen from a load into ``sink``."""
    if committed is None:
        return Author.NO_ONE
    if committed.metadata == RESET_METADATA:
        return Author.RESET
    mark = read_commit_metadata(committed.metadata)
    if mark is None:
        return Author.STRANGER
    # A long name was cut when it was written: compare it cut in the same way.
    if str(replace(mark, sink=sink)) != committed.metadata:
        return Author.OTHER_LOAD
    return Author.THIS_LOAD_STARTING if mark.cycle_id == STARTING else Author.THIS_LOAD
