"""The database of the demo's members: counts and offsets in one SQLite transaction.

A member may be killed at any moment: then both the counts and the offsets of a batch are stored, or neither,
and another member continues from the stored offsets. An offset moves only from where the batch began, so a
member that has lost its partitions without noticing cannot count a record twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

_TABLES: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE counts (country TEXT PRIMARY KEY, customers INTEGER NOT NULL);
    CREATE TABLE progress (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL);
"""
_BUSY_SECONDS: Final = 20.0


class CountedRange(NamedTuple):
    """Offsets from ``start`` up to, but not including, ``end``."""

    start: int
    end: int


class Results:
    """A connection to the database."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)

    @classmethod
    def create(cls, path: Path, partitions: int) -> Self:
        """Create the database."""
        results = cls(path)
        results._database.executescript(_TABLES)
        rows = [(partition,) for partition in range(partitions)]
        results._database.executemany("INSERT INTO progress VALUES (?, 0)", rows)
        return results

    def add(self, counts: Mapping[str, int], ranges: Mapping[int, CountedRange]) -> bool:
        """Add the counts of these ranges by partition; False, without a change, if already stored."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        for partition, (start, end) in ranges.items():
            moved = database.execute(
                "UPDATE progress SET next_offset = ? WHERE partition = ? AND next_offset = ?",
                (end, partition, start),
            )
            if moved.rowcount != 1:
                database.execute("ROLLBACK")
                return False
        database.executemany(
            "INSERT INTO counts VALUES (?, ?) "
            "ON CONFLICT DO UPDATE SET customers = customers + excluded.customers",
            counts.items(),
        )
        database.execute("COMMIT")
        return True

    def counts(self) -> dict[str, int]:
        """The customers of each country so far."""
        return dict(self._database.execute("SELECT country, customers FROM counts"))

    def next_offsets(self) -> dict[int, int]:
        """The offset of the first uncounted record of each partition."""
        return dict(self._database.execute("SELECT partition, next_offset FROM progress ORDER BY partition"))

    def close(self) -> None:
        self._database.close()
