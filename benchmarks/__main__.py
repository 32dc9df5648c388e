"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named, and write RESULTS.md."""

from __future__ import annotations

import importlib
import sys

from benchmarks import report

SUITES = ("broker", "clients", "groups")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}. There are: {', '.join(SUITES)}")
        return 2
    for name in names or SUITES:
        print(name, flush=True)
        report.write(importlib.import_module(f"benchmarks.{name}").run())
    print(f"written to {report.RESULTS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
