"""What the tests of clients found out, left in ``.cache`` for ``python -m tests.kafka.compatibility``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parents[2] / ".cache" / "compatibility"
FEATURES: Final = {
    "produce": "writes what all can read",
    "group": "reads in a group",
    "rebalance": "shares when a member joins, takes over when it leaves",
    "commit": "its commits are those that our tools show",
    "resume": "a new run goes on where the last one stopped",
    "broker restart": "goes on after the broker was away",
}
"""The columns of the table, with what each stands for."""


def record(client: str, version: str, features: list[str]) -> None:
    """A client did all this. Each has a file of its own, as workers run at the same time."""
    assert set(features) <= FEATURES.keys(), features
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    found = {"client": client, "version": version, "features": features}
    (DIRECTORY / f"{client}.json").write_text(json.dumps(found))
