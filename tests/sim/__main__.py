"""Run the simulation: ``python -m tests.sim --seeds 1000``, or ``--seed 7 --trace`` to see one run."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.sim.families import run_seed
from tests.sim.scenario import Result

_CHUNK = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many processes to use")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    if options.seed is not None:
        return _show(options.seed, tracing=options.trace)
    began = time.perf_counter()
    failures = events = done = 0
    for result in _results(range(options.start, options.start + options.seeds), options.jobs):
        done += 1
        events += result.events
        if result.violation is not None:
            failures += 1
            print(f"seed {result.seed}: {result.violation}", flush=True)
            print(f"  replay it: python -m tests.sim --seed {result.seed} --trace", flush=True)
            if not options.keep_going:
                break
    took, cpu = time.perf_counter() - began, _cpu_seconds()
    print(
        f"{done} seeds, {failures} failures, {events} events, {took:.1f} s ({cpu:.1f} s of processor time), "
        f"{done / took:.1f} seeds/s"
    )
    return 1 if failures else 0


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _show(seed: int, *, tracing: bool) -> int:
    result, trace = run_seed(seed, tracing=tracing)
    for line in trace:
        print(line)
    print(f"seed {seed}: {result.violation or f'digest {result.digest:08x}'}")
    return 1 if result.violation else 0


def _results(seeds: Iterable[int], jobs: int) -> Iterator[Result]:
    with ProcessPoolExecutor(jobs, initializer=_collect_less) as processes:
        try:
            yield from processes.map(_result, seeds, chunksize=_CHUNK)
        finally:
            processes.shutdown(cancel_futures=True)


def _collect_less() -> None:
    """Spare the collector what lives as long as the process, and most of what a run leaves behind at once."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def _result(seed: int) -> Result:
    return run_seed(seed)[0]


if __name__ == "__main__":
    sys.exit(main())
