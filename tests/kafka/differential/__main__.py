# ruff: noqa: T201
"""``python -m tests.kafka.differential --seeds N``: N sequences on the embedded broker and on Apache Kafka.

A difference is shrunk and printed as lines of JSON, which ``--replay FILE`` runs again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from millstream import EmbeddedBroker
from tests.kafka.differential.generator import sequence
from tests.kafka.differential.lockstep import Difference, Parted, run
from tests.kafka.differential.shrink import shrink
from tests.kafka.differential.values import Step
from tests.kafka.server import Run, what_is_missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many sequences")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--replay", type=Path, help="a file of steps, one a line, instead of seeds")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first difference")
    parser.add_argument("--kafka", help="host:port of an Apache Kafka that runs already")
    arguments = parser.parse_args()
    if not arguments.kafka and (missing := what_is_missing()):
        parser.error(f"Apache Kafka cannot run: {missing}")
    shared = Run.begin()
    try:
        with EmbeddedBroker() as broker:
            both = partial(run, ours=broker.bootstrap_servers, theirs=arguments.kafka or shared.address())
            if arguments.replay:
                return _replay(arguments.replay, both)
            return _try_seeds(
                range(arguments.first, arguments.first + arguments.seeds), both, arguments.keep_going
            )
    finally:
        shared.end()


def _try_seeds(seeds: Sequence[int], both: partial[Difference | Parted | None], keep_going: bool) -> int:
    failed = parted = 0
    for seed in seeds:
        steps = sequence(seed)
        began = time.monotonic()
        found = both(steps)
        end = f", parted after {found.index + 1}: {found.what}" if isinstance(found, Parted) else ""
        print(f"seed {seed}: {len(steps)} steps in {time.monotonic() - began:.1f} s{end}", flush=True)
        if isinstance(found, Parted):
            parted += 1
        elif found is not None:
            failed += 1
            steps, found = shrink(steps, found, both)
            print("\n".join(map(str, steps)), found, sep="\n", flush=True)
            if not keep_going:
                break
    print(f"{failed} differ, {parted} could not be compared to their end")
    return 1 if failed else 0


def _replay(path: Path, both: partial[Difference | Parted | None]) -> int:
    found = both([Step.parse(line) for line in path.read_text().splitlines() if line.startswith("{")])
    print(found or "no difference")
    return 1 if isinstance(found, Difference) else 0


if __name__ == "__main__":
    sys.exit(main())
