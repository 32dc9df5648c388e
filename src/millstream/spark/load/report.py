"""The report of a load's run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from millstream.spark.load.decisions.cycles import merged
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import LostRange


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A run of a load: ``loaded`` rows and ``rejected`` ones, from ``ranges`` of offsets."""

    group_id: str
    sink: str
    loaded: int = 0
    rejected: int = 0
    records: int = 0
    """Records read: more than loaded and rejected together if SQL filters some out."""
    ranges: tuple[OffsetRange, ...] = ()
    """What was loaded; adjacent ranges are merged."""
    bytes: int = 0
    files: int = 0
    seconds: float = 0.0
    spark_seconds: float = 0.0
    """Of ``seconds``, how long the run waited for Spark to start."""
    lost: tuple[LostRange, ...] = ()
    """Ranges that this run found deleted by retention or skipped, and recorded as lost."""
    cycles: int = 0
    notes: tuple[str, ...] = ()
    """What was unusual, as sentences."""
    stopped: bool = False
    """Whether it was stopped (Ctrl-C, SIGTERM, ``stop``) before its end."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            "group": values.pop("group_id"),
            **values,
            "ranges": [range_values(one) for one in self.ranges],
            "seconds": round(self.seconds, 3),
            "spark_seconds": round(self.spark_seconds, 3),
            "lost": [lost_values(one) for one in self.lost],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        written = ", ".join(
            (_count(self.files, "file"), _count(self.bytes, "byte"), _count(self.cycles, "cycle"))
        )
        result = f"{_count(self.loaded, 'row')} loaded into {self.sink}, {self.rejected:,} rejected"
        lines = [f"{result} ({written}, {self.seconds:.1f} s)"]
        lines += [f"  {one}" for one in self.ranges]
        lines += [f"  lost: {lost_text(one)}" for one in self.lost]
        lines += [f"  note: {one}" for one in self.notes]
        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def range_values(one: OffsetRange) -> dict[str, Any]:
    """A range as plain values."""
    return {"topic": one.topic, "partition": one.partition, "start": one.start, "end": one.end}


def lost_values(one: LostRange) -> dict[str, Any]:
    """A lost range as plain values."""
    where = OffsetRange(one.topic, one.partition, one.start, one.end)
    return {**range_values(where), "reason": str(one.reason), "noticed_at": one.noticed_at.isoformat()}


def lost_text(one: LostRange) -> str:
    """A lost range in a line."""
    return f"{one.topic}-{one.partition} [{one.start}, {one.end}), {one.reason}"


_SUMMED: Final = ("loaded", "rejected", "records", "bytes", "files", "cycles")


@dataclass(slots=True)
class Tally:
    """The report of a run while it goes on."""

    so_far: LoadReport

    def add(self, cycle: LoadReport) -> None:
        """Add what a cycle has loaded."""
        sums: dict[str, Any] = {name: getattr(self.so_far, name) + getattr(cycle, name) for name in _SUMMED}
        ranges = tuple(merged([*self.so_far.ranges, *cycle.ranges]))
        self.so_far = replace(self.so_far, ranges=ranges, **sums)

    def add_lost(self, lost: Iterable[LostRange]) -> None:
        self.so_far = replace(self.so_far, lost=(*self.so_far.lost, *lost))

    def add_notes(self, notes: Iterable[str]) -> None:
        """Keep sentences about what was unusual, each once."""
        self.so_far = replace(self.so_far, notes=tuple(dict.fromkeys([*self.so_far.notes, *notes])))
