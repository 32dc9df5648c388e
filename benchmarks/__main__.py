"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named, and write RESULTS.md.

``chart`` draws what RESULTS.md says about reading; it is drawn anew after the clients, too.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks import chart, report

SUITES = (
    "broker",
    "clients",
    "producers",
    "partitions",
    "idle_partitions",
    "groups",
    "tls",
    "scans",
    "avro",
    "loads",
    "writers",
)
CHART = "chart"


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in (*SUITES, CHART)]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}. There are: {', '.join((*SUITES, CHART))}")
        return 2
    for name in names or SUITES:
        if name != CHART:
            print(name, flush=True)
            for section in importlib.import_module(f"benchmarks.{name}").run():
                report.write([section])
            print(f"written to {report.RESULTS}")
    if CHART in names or not names or "clients" in names:
        try:
            print(f"drawn in {chart.draw()}")
        except ValueError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
