"""What the producer's tests share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Final

from millstream.admin import Admin

SECONDS: Final = 30.0
"""How long something may take that must happen."""


def make_topic(admin: Admin, partitions: int, **configs: object) -> str:
    """A new topic. Settings are Kafka's, with underscores for the dots."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin.create_topic(
        name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
    )
    return name


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.005)
