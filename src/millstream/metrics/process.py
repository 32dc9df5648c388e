"""The metrics that every process has, under the names that Prometheus' own clients use."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.metrics.declarations import Metric, MetricReading

CPU: Final = Metric("process_cpu_seconds_total", "counter", "Seconds of processor time.")
MEMORY: Final = Metric("process_resident_memory_bytes", "gauge", "Memory in use.")
DESCRIPTORS: Final = Metric("process_open_fds", "gauge", "Open file descriptors.")
STARTED: Final = Metric("process_start_time_seconds", "gauge", "When it started, in seconds since 1970.")
ALL: Final = (CPU, MEMORY, DESCRIPTORS, STARTED)

_STARTED_S: Final = time.time() - time.process_time()


def process_readings() -> Iterator[MetricReading]:
    """Read what the system says about this process."""
    yield MetricReading(CPU, {(): time.process_time()})
    yield MetricReading(MEMORY, {(): _resident_bytes()})
    if (descriptors := Path("/proc/self/fd")).is_dir():
        yield MetricReading(DESCRIPTORS, {(): len(os.listdir(descriptors))})
    yield MetricReading(STARTED, {(): _STARTED_S})


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # not on Linux: the most that it ever had
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
