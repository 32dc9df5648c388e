"""How a Python worker of Spark's treats memory: what a task has freed is kept for the next.

Fetches and columns are arrays of megabytes, made and freed all the time. The C library gives such memory back
to the system at once, and each page of it is made anew, filled with zeros, when it is next touched: up to a
third of the time of a task that reads. A worker holds no more at its peak for that, only longer.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

# Of <malloc.h>, as the GNU C library numbers them.
_TRIM_THRESHOLD: Final = -1
_TOP_PAD: Final = -2
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_LARGEST_KEPT: Final = 32 << 20
"""What is larger has a place of its own, whatever it is told."""
_SETTINGS: Final = {
    _TRIM_THRESHOLD: 1 << 30,
    _TOP_PAD: 64 << 20,
    _MMAP_THRESHOLD: _LARGEST_KEPT,
    _ARENA_MAX: 1,  # the thread that fetches fills what the one that decodes has freed
}


@cache
def keep_freed() -> bool:
    """Keep freed memory in this process; whether the C library can. To be called before threads begin."""
    try:
        choose = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another library, or another system
        return False
    return all(choose(name, value) == 1 for name, value in _SETTINGS.items())
