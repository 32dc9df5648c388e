"""The order of test files over several workers: those that take minutes come first.

A worker gets whole files (``--dist loadfile``). A long file that comes last keeps one worker busy while the
others have nothing left to do; short files at the end fill the gaps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parent

LONGEST: Final = (
    "spark/test_source_peer.py",
    "spark/chaos/test_cluster.py",
    "spark/test_source_cluster.py",
    "spark/test_secured.py",
    "spark/test_writer_cluster.py",
    "spark/chaos/test_connect.py",
    "spark/chaos/test_late_executors.py",
    "spark/chaos/test_kills.py",
    "spark/test_daemon_prestart.py",
    "spark/load/test_cli_starts.py",
    "spark/load/test_cli.py",
    "spark/load/test_cli_examples.py",
    "spark/load/test_sink_package.py",
    "system/test_docs.py",
    "system/test_examples.py",
    "system/test_cli_demo.py",
)
"""Files that start clusters or Spark in processes of their own, roughly by the time they take."""


def longest_first(items: list[pytest.Item]) -> None:
    """Move the tests of the longest files to the front; all others keep their order."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
