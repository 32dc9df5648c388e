"""Programs that use Spark, on a machine that may be busy."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any, Final

TOO_BUSY: Final = "to connect back"
"""Spark gives a Python process that plans a stream ten seconds to start, and has no setting for that.

Its exception says "Python worker failed to connect back", and only the cause says that it timed out.
"""
ATTEMPTS: Final = 4


def run_program(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return its output; run it again where the machine was too busy for Spark."""
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
        if done.returncode == 0 or TOO_BUSY not in done.stdout + done.stderr:
            break
    return done
