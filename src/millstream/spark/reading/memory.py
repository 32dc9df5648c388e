"""Keeps memory that a task has freed in its Python worker, for the next task.

Fetches and columns are arrays of megabytes, allocated and freed all the time. The C library returns such
memory to the system at once, and the system zeroes each page when it is next touched: up to a third of the
time of a task that reads. A worker's peak does not grow; it only holds the memory longer.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

# From <malloc.h> of the GNU C library.
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_SETTINGS: Final = {
    _TRIM_THRESHOLD: 1 << 30,
    _TOP_PAD: 64 << 20,
    _MMAP_THRESHOLD: 32 << 20,  # the largest that the library accepts: larger arrays are always mapped
    _ARENA_MAX: 1,  # the thread that fetches fills what the one that decodes has freed
}


@cache
def keep_freed() -> bool:
    """Keep freed memory in this process; False if the C library cannot. Call it before threads start."""
    try:
        choose = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return all(choose(name, value) == 1 for name, value in _SETTINGS.items())
