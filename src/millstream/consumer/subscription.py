"""SubscriptionState: what a consumer reads: topics or a pattern through a group, or assigned partitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum

from millstream.client.cluster import Cluster
from millstream.errors import MisuseError


class SubscriptionMode(Enum):
    """How partitions are chosen. One consumer cannot mix them."""

    NONE = "nothing"
    TOPICS = "subscribe() with topics"
    PATTERN = "subscribe() with a pattern"
    MANUAL = "assign()"


class SubscriptionState:
    """The current subscription or assignment. ``clear`` comes before a change of mode."""

    def __init__(self, *, exclude_internal: bool) -> None:
        self._exclude_internal = exclude_internal
        self.mode = SubscriptionMode.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None

    @property
    def is_by_group(self) -> bool:
        return self.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    @property
    def accepts(self) -> Callable[[str], bool] | None:
        """Whether a topic matches the pattern; None without a pattern."""
        return None if self.pattern is None else self._matches

    def choose_topics(self, topics: Iterable[str]) -> None:
        self._enter(SubscriptionMode.TOPICS)
        self.topics, self.pattern = frozenset(topics), None

    def choose_pattern(self, pattern: re.Pattern[str], cluster: Cluster) -> None:
        self._enter(SubscriptionMode.PATTERN)
        self.pattern = pattern
        self.topics = self._matching(cluster)

    def choose_partitions(self) -> None:
        self._enter(SubscriptionMode.MANUAL)

    def clear(self) -> None:
        self.mode = SubscriptionMode.NONE
        self.topics, self.pattern = frozenset(), None

    def update_topics(self, cluster: Cluster) -> bool:
        """Update the topics that match the pattern; returns whether they have changed."""
        if self.mode is not SubscriptionMode.PATTERN:
            return False
        before, self.topics = self.topics, self._matching(cluster)
        return before != self.topics

    def _matching(self, cluster: Cluster) -> frozenset[str]:
        return frozenset(
            name
            for name, topic in cluster.topics.items()
            if self._matches(name) and not (topic.internal and self._exclude_internal)
        )

    def _matches(self, topic: str) -> bool:
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def _enter(self, mode: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, mode):
            raise MisuseError(
                f"this consumer already uses {self.mode.value}, which cannot be mixed with {mode.value}: "
                "call unsubscribe() first, or use two consumers"
            )
        self.mode = mode
