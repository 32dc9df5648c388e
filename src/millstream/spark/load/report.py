"""The report of a load's run, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.spark.load.decisions.cycles import merged
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import LostRange


@dataclass(frozen=True, slots=True)
class CycleReport:
    """One cycle that was committed."""

    cycle_id: str
    ranges: tuple[OffsetRange, ...]
    records: int
    loaded: int
    rejected: int
    bytes: int
    files: int
    seconds: float


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
    lost: tuple[LostRange, ...] = ()
    """Ranges that this run found deleted by retention or skipped, and recorded as lost."""
    cycles: int = 0
    notes: tuple[str, ...] = ()
    """What was unusual, as sentences."""
    stopped: bool = False
    """Whether it was stopped (Ctrl-C, SIGTERM, ``stop``) before its end."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "group": self.group_id,
            "sink": self.sink,
            "loaded": self.loaded,
            "rejected": self.rejected,
            "records": self.records,
            "ranges": [range_values(one) for one in self.ranges],
            "bytes": self.bytes,
            "files": self.files,
            "seconds": round(self.seconds, 3),
            "lost": [lost_values(one) for one in self.lost],
            "cycles": self.cycles,
            "notes": list(self.notes),
            "stopped": self.stopped,
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
    return {
        "topic": one.topic,
        "partition": one.partition,
        "start": one.start,
        "end": one.end,
        "reason": str(one.reason),
        "noticed_at": one.noticed_at.isoformat(),
    }


def lost_text(one: LostRange) -> str:
    """A lost range in a line."""
    return f"{one.topic}-{one.partition} [{one.start}, {one.end}), {one.reason}"


@dataclass(slots=True)
class Tally:
    """The counts of a run while it goes on."""

    group_id: str
    sink: str
    loaded: int = 0
    rejected: int = 0
    records: int = 0
    bytes: int = 0
    files: int = 0
    cycles: int = 0
    ranges: list[OffsetRange] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, cycle: CycleReport) -> None:
        self.loaded += cycle.loaded
        self.rejected += cycle.rejected
        self.records += cycle.records
        self.bytes += cycle.bytes
        self.files += cycle.files
        self.cycles += 1
        self.ranges = merged([*self.ranges, *cycle.ranges])

    def note(self, notes: Sequence[str]) -> None:
        """Keep sentences about what was unusual, each once."""
        self.notes.update(dict.fromkeys(notes))

    def report(self, seconds: float, *, stopped: bool) -> LoadReport:
        return LoadReport(
            group_id=self.group_id,
            sink=self.sink,
            loaded=self.loaded,
            rejected=self.rejected,
            records=self.records,
            ranges=tuple(self.ranges),
            bytes=self.bytes,
            files=self.files,
            seconds=seconds,
            lost=tuple(self.lost),
            cycles=self.cycles,
            notes=tuple(self.notes),
            stopped=stopped,
        )
