"""Sequences from seeds: what well-behaved clients do, with the mistakes of all the others in between."""

from __future__ import annotations

from tests.kafka.differential.group_steps import GroupSteps
from tests.kafka.differential.log_steps import LogSteps
from tests.kafka.differential.steps import TOPICS
from tests.kafka.differential.topic_steps import TopicSteps
from tests.kafka.differential.values import Step


def sequence(seed: int) -> list[Step]:
    """The sequence of a seed: about groups, about logs, or about both."""
    return Generator(seed).sequence()


class Generator(GroupSteps, LogSteps, TopicSteps):
    """Makes one sequence."""

    def sequence(self) -> list[Step]:
        families = {
            "groups": [(self._group_work, 5), (self._commit_work, 4), (self._group_admin, 2)],
            "logs": [(self._log_work, 8), (self._topic_work, 3)],
            "both": [
                (self._group_work, 4),
                (self._commit_work, 3),
                (self._group_admin, 2),
                (self._log_work, 4),
                (self._topic_work, 2),
            ],
        }
        work = families[self._random.choice(list(families))]
        for name, partitions in list(TOPICS.items())[:2]:
            self._create(name, partitions)
        choices, weights = zip(*work, strict=True)
        wanted = self._random.randint(12, 30)
        while len(self._steps) < wanted:
            self._random.choices(choices, weights)[0]()
        return self._steps
