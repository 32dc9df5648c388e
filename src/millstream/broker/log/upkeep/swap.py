"""Replaces segments by a compacted one, so that a crash at any moment leaves either the old or the new.

The new files are written as ``.cleaned`` and synced. Then, with the directory synced after each step:

1. They are renamed to ``.swap``, the log last. From now on they count, and a restart continues from here.
2. The replaced segments are renamed to ``.deleted``, and the new indexes get their final names.
3. The new log gets its final name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from millstream.broker.log.files import Files
from millstream.broker.log.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    file_name,
)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
"""The suffix of files that left the log and will be removed in the background."""


class SwapName(NamedTuple):
    """The offsets of a compacted segment; they are part of its file names until it is in place."""

    base_offset: int
    end_offset: int

    def path(self, directory: str, suffix: str, stage: str) -> str:
        name = f"{self.base_offset:020d}-{self.end_offset:020d}{suffix}{stage}"
        return os.path.join(directory, name)

    @classmethod
    def parse(cls, name: str, suffix: str, stage: str) -> SwapName | None:
        base, _, end = name.removesuffix(suffix + stage).partition("-")
        is_one = name.endswith(suffix + stage) and base.isdecimal() and end.isdecimal()
        return cls(int(base), int(end)) if is_one else None


def swap_in(files: Files, directory: str, swap: SwapName, replaced_bases: Iterable[int]) -> list[str]:
    """Put cleaned files in place; return the files that left the log, to be removed.

    After a failure it must be retried until it succeeds: it continues where it failed.
    """
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        with suppress(FileNotFoundError):
            files.rename(
                swap.path(directory, suffix, CLEANED_SUFFIX), swap.path(directory, suffix, SWAP_SUFFIX)
            )
    files.sync_directory(directory)
    return _finish(files, directory, swap, replaced_bases)


def _finish(files: Files, directory: str, swap: SwapName, replaced_bases: Iterable[int]) -> list[str]:
    trash = []
    for base in replaced_bases:
        if base != swap.base_offset:  # the renames below replace its files
            trash += take_out(files, directory, base)
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        _rename_if_there(files, swap, directory, suffix)
    files.sync_directory(directory)
    _rename_if_there(files, swap, directory, LOG_SUFFIX)
    files.sync_directory(directory)
    return trash


def _rename_if_there(files: Files, swap: SwapName, directory: str, suffix: str) -> None:
    with suppress(FileNotFoundError):
        final = os.path.join(directory, file_name(swap.base_offset, suffix))
        files.rename(swap.path(directory, suffix, SWAP_SUFFIX), final)


def take_out(files: Files, directory: str, base_offset: int) -> list[str]:
    """Take a segment's files out of the log by renaming them; return their new names."""
    renamed = []
    for suffix in SEGMENT_SUFFIXES:  # the log first: indexes without a log mean nothing
        path = os.path.join(directory, file_name(base_offset, suffix))
        with suppress(FileNotFoundError):
            files.rename(path, path + DELETED_SUFFIX)
            renamed.append(path + DELETED_SUFFIX)
    return renamed


def finish_interrupted_swap(files: Files, directory: str, names: list[str]) -> bool:
    """Finish swaps that a crash interrupted, and undo those that had not begun; return whether any were."""
    leftovers = [name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX))]
    bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
    begun = [swap for name in leftovers if (swap := SwapName.parse(name, LOG_SUFFIX, SWAP_SUFFIX))]
    for swap in begun:
        _finish(
            files, directory, swap, [base for base in bases if swap.base_offset <= base < swap.end_offset]
        )
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            # They may be the old log's, as it is not known which renames are durable. They are rebuilt.
            files.unlink(os.path.join(directory, file_name(swap.base_offset, suffix)))
    for name in leftovers:
        files.unlink(os.path.join(directory, name))
    return bool(leftovers)
