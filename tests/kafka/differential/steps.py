"""What every generator of steps needs: chance, and the names that sequences use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.kafka.differential.values import API_BY_NAME, Plain, Step

TOPICS: Final = {"~t0": 1, "~t1": 3, "~t2": 2}
"""Name and partitions; the last is not there at first."""


class Steps:
    """A sequence in the making."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._steps: list[Step] = []
        self._producers = 0
        self._best: dict[str, tuple[str, ...]] = {}
        """The assignors that the members of a group like, the best first."""

    def _add(
        self, api: str, fields: dict[str, Plain], *, on: str = "main", alias: str = "", group: str = ""
    ) -> None:
        found = API_BY_NAME[api]
        version = self._random.randint(found.min_version, found.max_version)
        self._steps.append(Step(api, version, fields, on, alias, group))

    def _one(self, *work: Callable[[], None]) -> None:
        self._random.choice(work)()

    def _rarely(self, times_in_ten: int = 1) -> bool:
        return self._random.random() < times_in_ten / 10

    def _topic(self) -> str:
        return self._random.choices((*TOPICS, "~nowhere"), (6, 6, 2, 1))[0]

    def _partition(self, topic: str) -> int:
        return self._random.choices((0, TOPICS.get(topic, 1) - 1, 1, 7), (6, 3, 2, 1))[0]
