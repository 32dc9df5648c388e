"""What ``millstream load`` prints at its end, and the output of ``load status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.spark.sinks.kinds import find_kind
from millstream.terminal.output import count, print_table, size

if TYPE_CHECKING:
    from millstream.spark.load.report import LoadReport
    from millstream.spark.load.status import LoadStatus


def print_report(report: LoadReport, *, once: bool) -> None:
    """Print what a load did. Its notes were printed as warnings before."""
    if report.ranges:
        rows = [(one.topic, one.partition, one.start, one.end, one.offsets) for one in report.ranges]
        print_table(("topic", "partition", "from", "to", "offsets"), rows)
        print()
    for lost in report.lost:
        print(f"lost: {lost.topic}-{lost.partition} [{lost.start}, {lost.end}), {lost.reason}")
    print(summary(report, once=once))


def summary(report: LoadReport, *, once: bool) -> str:
    """The run in one line. With ``once`` it was meant to end by itself, so a stop came too early."""
    ended = "; it was stopped before its end: run it again to continue" if once and report.stopped else ""
    if not report.cycles:
        what = "nothing was loaded" if report.stopped else "nothing new to load"
        return f"{what} into {report.sink}, {report.seconds:.1f} s{ended}"
    parts = [count(report.cycles, "cycle")]
    kind = find_kind(report.sink)
    if kind is not None and kind.has_files:
        parts.append(count(report.files, "file"))
    parts += [size(report.bytes), f"{report.seconds:.1f} s"]
    if report.seconds > 0:
        parts.append(speed(report.records / report.seconds))
    if 0.05 < report.spark_seconds < report.seconds:
        working = report.seconds - report.spark_seconds
        parts[-1] += f" ({speed(report.records / working)} in the {working:.1f} s without Spark's start)"
    return (
        f"{count(report.loaded, 'row')} loaded into {report.sink}, {report.rejected:,} rejected; "
        f"{', '.join(parts)}{ended}"
    )


def speed(records_per_second: float) -> str:
    """``12,345 records/s``; below 10 with one decimal."""
    digits = 0 if records_per_second >= 10 else 1
    return f"{records_per_second:,.{digits}f} records/s"


def print_status(found: LoadStatus) -> None:
    """Print the status of a load, and the ranges that were never loaded."""
    columns = ("topic", "partition", "loaded", "committed", "end", "lag", "note")
    rows = [
        (
            *one.partition,
            one.loaded,
            one.committed,
            one.log_end,
            one.lag,
            one.note.removeprefix(f"{one.partition}: "),  # the row names it
        )
        for one in found.partitions
    ]
    print_table(columns, rows)
    if found.lost:
        print()
        print_table(
            ("lost topic", "partition", "start", "end", "reason", "noticed"),
            [
                (one.topic, one.partition, one.start, one.end, str(one.reason), one.noticed_at.isoformat())
                for one in found.lost
            ],
        )
