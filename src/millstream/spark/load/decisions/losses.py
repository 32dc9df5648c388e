"""Ranges recorded as lost, less what was loaded later. Pure.

A sink only adds to its record. A range that was recorded as lost and is loaded later, as after a rewind, is
added again with the reason ``loaded``. Ranges of a topic that was deleted and recreated are told apart by the
topic's id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.spark.sinks.base import Advance, Loss, LostRange


def still_lost(recorded: Iterable[LostRange]) -> list[LostRange]:
    """What is still lost of the ``recorded`` ranges, which are in the order in which they were noticed."""
    found: list[LostRange] = []
    for one in recorded:
        if one.reason is Loss.LOADED:
            found = [part for lost in found for part in _without(lost, one)]
        else:
            found.append(one)
    return found


def _without(lost: LostRange, loaded: LostRange) -> list[LostRange]:
    if not _same_topic(lost, loaded) or loaded.end <= lost.start or lost.end <= loaded.start:
        return [lost]
    parts = ((lost.start, loaded.start), (loaded.end, lost.end))
    return [replace(lost, start=start, end=end) for start, end in parts if start < end]


def _same_topic(one: LostRange | Advance, other: LostRange | Advance) -> bool:
    """The same partition of the same topic; assumed where one of them has no topic id."""
    ids = {one.topic_id, other.topic_id} - {""}
    return (one.topic, one.partition) == (other.topic, other.partition) and len(ids) < 2


def goes_back(advances: Iterable[Advance]) -> bool:
    """Whether a cycle may load what was recorded as lost: it loads offsets again that were passed before."""
    return any(
        advance.start < advance.end and advance.replaces(advance.expected.rows) for advance in advances
    )


def loaded_again(
    recorded: Iterable[LostRange], advances: Iterable[Advance]
) -> list[tuple[Advance, int, int]]:
    """What a cycle loads of the ranges that are still lost: starts and ends, with the advance that does."""
    lost = still_lost(recorded)
    return [
        (advance, max(one.start, advance.start), min(one.end, advance.end))
        for advance in advances
        for one in lost
        if _same_topic(one, advance) and one.start < advance.end and advance.start < one.end
    ]
