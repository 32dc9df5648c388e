"""What this machine could not run is named at the end of a test run, never silently left out."""

from __future__ import annotations

from collections import Counter
from typing import Final, NoReturn

import pytest

_PREFIX: Final = "not run: "


def not_run(what: str, why: str) -> NoReturn:
    """Leave a test out because the machine lacks something, and have the summary say so."""
    pytest.skip(f"{_PREFIX}{what}: {why}")


def summarize(reporter: pytest.TerminalReporter) -> None:
    """One line for each thing that was left out, with the number of its tests."""
    reasons = (_reason(report) for report in reporter.stats.get("skipped", ()))
    counted = Counter(reason for reason in reasons if reason.startswith(_PREFIX))
    if not counted:
        return
    reporter.section("not run on this machine", yellow=True)
    for reason, count in sorted(counted.items()):
        tests = "test" if count == 1 else "tests"
        reporter.line(f"{reason.removeprefix(_PREFIX)} ({count} {tests})", yellow=True)


def _reason(report: object) -> str:
    longrepr = getattr(report, "longrepr", None)
    if not isinstance(longrepr, tuple):
        return ""
    reason: str = longrepr[2]
    return reason.removeprefix("Skipped: ")
