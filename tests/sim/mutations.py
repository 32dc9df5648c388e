"""Bugs planted on purpose: each must be caught, or the simulation is not worth much.

``python -m tests.sim.mutations`` applies them one after the other and runs seeds until one catches it.
"""

# ruff: noqa: T201 - a command speaks
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tests.sim.families import run_seed
from tests.sim.planted import coordinator, member, user
from tests.sim.planted.mutation import Mutation

MUTATIONS: Final[Mapping[str, Mutation]] = {
    **member.MUTATIONS,
    **user.MUTATIONS,
    **coordinator.MUTATIONS,
}


@contextmanager
def planted(mutation: Mutation) -> Iterator[None]:
    """The code with the bug in it."""
    patches = mutation.targets()
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


def catch(mutation: Mutation, seeds: range) -> tuple[int, str] | None:
    """The first seed that catches the bug, with what it says. An exception of the code counts as well."""
    with planted(mutation):
        for seed in seeds:
            try:
                result, _ = run_seed(seed, family=mutation.family)
            except Exception as error:  # noqa: BLE001 - our assertions, mostly: the bug shows
                return seed, f"{type(error).__name__}: {error}"
            if result.violation is not None:
                return seed, result.violation
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations to plant; all when none is named")
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds may be needed")
    options = parser.parse_args()
    missed = 0
    for name in options.names or MUTATIONS:
        began = time.perf_counter()
        caught = catch(MUTATIONS[name], range(options.seeds))
        took = time.perf_counter() - began
        if caught is None:
            missed += 1
            print(f"{name:26} MISSED in {options.seeds} seeds ({took:.1f} s)")
        else:
            print(f"{name:26} seed {caught[0]:4} ({took:.1f} s): {caught[1][:140]}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
