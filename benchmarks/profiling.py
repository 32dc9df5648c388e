"""Where poll_arrow's time goes: ``python -m benchmarks.profiling SERVERS TOPIC RECORDS BROKER_PID``.

Prints JSON: seconds for a million records, of the clock and of each thread's processor time; and the
functions that take most of it, from a second pass under a profiler (Python looks slower there than it is).
"""

from __future__ import annotations

import cProfile
import json
import pstats
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.readers import poll_arrow, warm_up
from millstream.client.io_thread import IoThread

TOP = 12


def main(servers: str, topic: str, records: str, broker: str) -> None:
    warm_up(poll_arrow, servers, topic, int(records))
    seconds = _seconds(servers, topic, int(records), psutil.Process(int(broker)))
    print(json.dumps({"seconds": seconds, "functions": _functions(servers, topic, int(records) // 4)}))


def _seconds(servers: str, topic: str, records: int, broker: psutil.Process) -> dict[str, float]:
    reading = poll_arrow(servers, topic)
    next(count for count in reading if count)
    before = _clocks(broker)
    total = _read(reading, records)
    taken = {name: (value - before[name]) / total * 1e6 for name, value in _clocks(broker).items()}
    return {
        "wall": taken["wall"],
        "the user's thread": taken["thread"],
        "the I/O thread": taken["process"] - taken["thread"],
        "of these, in the kernel": taken["kernel"],
        "the broker": taken["broker"],
    }


def _clocks(broker: psutil.Process) -> dict[str, float]:
    spent = broker.cpu_times()
    return {
        "wall": time.perf_counter(),
        "thread": time.thread_time(),
        "process": time.process_time(),
        "kernel": resource.getrusage(resource.RUSAGE_SELF).ru_stime,
        "broker": spent.user + spent.system,
    }


def _read(reading: Iterator[int], records: int) -> int:
    total = 0
    while total < records:
        total += next(reading)
    return total


def _functions(servers: str, topic: str, records: int) -> list[tuple[str, float]]:
    """The functions that take most processor time themselves, and their parts of all of it."""
    profiles = [cProfile.Profile(time.thread_time), cProfile.Profile(time.thread_time)]
    thread: Any = IoThread
    run = thread._run
    thread._run = lambda self: profiles[1].runcall(run, self)
    reading = poll_arrow(servers, topic)
    next(count for count in reading if count)
    profiles[0].runcall(_read, reading, records)
    reading.close()  # type: ignore[attr-defined]  # it is a generator: now the thread has ended
    stats: Any = pstats.Stats(*profiles)
    own = {name: figures[2] for name, figures in stats.stats.items()}
    total = sum(own.values())
    ranking = sorted(own.items(), key=lambda item: -item[1])[:TOP]
    return [(_shown(name), taken / total) for name, taken in ranking]


def _shown(name: tuple[str, int, str]) -> str:
    path, _, function = name
    module = path.partition("/millstream/")[2] or path.rpartition("site-packages/")[2]
    return function if path == "~" else f"{module}: {function}"


if __name__ == "__main__":
    main(*sys.argv[1:])
