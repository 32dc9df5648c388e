"""Encodes a partition's progress as Delta application transactions, which hold one integer each.

Each partition of a group is an application, ``millstream/GROUP/TOPIC/PARTITION``, whose version is the next
offset. Beside it:

- ``…/at``: the version of the table that has this progress. A commit applies to exactly one snapshot, so its
  version is known beforehand. A later restore makes the progress void.
- ``…/high``: the high offset, written only where it is not the next offset: in a rewind.
- ``…/id/0`` to ``…/id/2``: the topic's id, fifteen digits each, written only when it changes.
- ``…/remade``: how often the topic was recreated, written only when it changes.
- ``…/low``, ``…/gap``: the low offset and the end of the gap, 0 unless written, and only when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

from millstream.model import TopicPartition
from millstream.spark.sinks.base import Progress, SinkError

_DIGITS: Final = 15
"""With a leading 1, which keeps zeros, 61 bits: they fit in a signed long."""
_PARTS: Final = 3
_NOTHING: Final = -1
"""Instead of the next offset, where a restored version has no progress."""


def application(group_id: str, topic: str, partition: int) -> str:
    """The name of a partition's application; the group's name is quoted, as it may have any characters."""
    return f"millstream/{quote(group_id, safe='')}/{topic}/{partition}"


def partition_of(name: str) -> TopicPartition | None:
    """The partition of an application; None for other applications, and for those beside one (``…/at``)."""
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != "millstream" or not parts[3].isdecimal():
        return None
    return TopicPartition(parts[2], int(parts[3]))


def group_of(name: str) -> str:
    """The group of a partition's application."""
    return unquote(name.split("/")[1])


def decode(name: str, read: Callable[[str], int | None]) -> Progress | None:
    """The progress in these transactions."""
    next_offset = read(name)
    if next_offset is None or next_offset == _NOTHING:
        return None
    high = read(f"{name}/high")
    remade, low, gap = (read(f"{name}/{what}") or 0 for what in ("remade", "low", "gap"))
    topic_id = _topic_id(name, read) or ""
    return Progress(next_offset, max(next_offset, high or 0), topic_id, remade, low, gap)


def committed_at(name: str, read: Callable[[str], int | None]) -> int:
    """The version of the table that holds this progress."""
    at = read(f"{name}/at")
    return -1 if at is None else at


def encode(
    name: str, progress: Progress, version: int, stored: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """The transactions that change what is ``stored`` to ``progress``, in a commit as ``version``."""
    yield name, progress.next_offset
    yield f"{name}/at", version
    if max(progress.next_offset, stored.get(f"{name}/high", 0)) != progress.high_offset:
        yield f"{name}/high", progress.high_offset
    rare = {"remade": progress.remade, "low": progress.low_offset, "gap": progress.gap_end}
    for what, number in rare.items():
        if stored.get(f"{name}/{what}", 0) != number:
            yield f"{name}/{what}", number
    if _topic_id(name, stored.get) != progress.topic_id:
        yield from _id_parts(name, progress.topic_id)


def pinned(
    name: str, progress: Progress | None, version: int, stored: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """The transactions that store an application's progress after a restore, in a commit as ``version``:
    later the restored version may no longer be readable.
    """
    if progress is not None:
        yield from encode(name, progress, version, stored)
    else:
        yield from ((name, _NOTHING), (f"{name}/at", version))


def _id_parts(name: str, topic_id: str) -> Iterator[tuple[str, int]]:
    if len(topic_id) > _DIGITS * _PARTS or not all(digit in "0123456789abcdef" for digit in topic_id):
        raise SinkError(
            f"a topic's id is hexadecimal, of at most {_DIGITS * _PARTS} digits, not {topic_id!r}"
        )
    for part in range(_PARTS):
        digits = topic_id[part * _DIGITS : (part + 1) * _DIGITS]
        yield f"{name}/id/{part}", int("1" + digits, 16)


def _topic_id(name: str, read: Callable[[str], int | None]) -> str | None:
    parts = [read(f"{name}/id/{part}") for part in range(_PARTS)]
    return None if None in parts else "".join(f"{part:x}"[1:] for part in parts)
