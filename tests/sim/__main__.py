"""Run the simulation: ``python -m tests.sim --seeds 1000``, or ``--seed 7 --trace`` to see one run."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.families import run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--wire", action="store_true", default=None, help="all messages through bytes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.seeds) if options.seed is None else [options.seed]
    began = time.perf_counter()
    failures = events = done = 0
    for seed in seeds:
        result, trace = run_seed(seed, tracing=options.trace, on_wire=options.wire)
        done += 1
        events += result.events
        if options.trace:
            print("\n".join(trace))
        if result.violation is not None:
            failures += 1
            print(f"seed {seed}: {result.violation}")
            print(
                f"  replay it: python -m tests.sim --seed {seed} --trace" + (" --wire" * bool(options.wire))
            )
            if not options.keep_going:
                break
        elif options.seed is not None:
            print(f"seed {seed}: digest {result.digest:08x}")
    took = time.perf_counter() - began
    print(f"{done} seeds, {failures} failures, {events} events, {took:.1f} s, {done / took:.1f} seeds/s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
