"""What the source asks the cluster on the driver: topics, the ends of logs, committed offsets."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from millstream.admin import Admin
from millstream.config import AdminConfig
from millstream.consumer import Consumer
from millstream.errors import ConfigError, MillstreamError, UnknownTopicOrPartitionError
from millstream.model import TopicPartition
from millstream.spark.planning.limits import Seen
from millstream.spark.planning.offsets import Offsets
from millstream.spark.source.options import SourceOptions, Subscription

log = logging.getLogger("millstream.spark")

_MIRROR_SECONDS: Final = 5.0
_MIRROR_PAUSE_SECONDS: Final = 30.0
"""After a failed commit, batches do not wait for another for so long."""


class Cluster:
    """A connection for the driver's questions. Close it, or use ``with``."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        settings = dict(options.settings)
        for_admin = {name: value for name, value in settings.items() if _dotless(name) in AdminConfig.names()}
        self._admin = Admin(for_admin)
        group = {} if options.group_id is None else {"group.id": options.group_id}
        always = {"enable.auto.commit": "false", "allow.auto.create.topics": "false"}
        self._consumer = Consumer({**settings, **group, **always})
        self._mirrored: dict[TopicPartition, int] = {}
        self._quiet_until = 0.0

    # -- topics

    def topics(self, subscription: Subscription) -> tuple[dict[str, str], list[TopicPartition]]:
        """The ids of the topics to be read, as far as they exist, and the partitions."""
        if subscription.pattern is not None:
            described = self._matching(subscription.pattern)
        else:
            described = self._existing(subscription.names)
        ids = {name: topic_id for name, (topic_id, _) in described.items()}
        found = [each for _, partitions in described.values() for each in partitions]
        if subscription.partitions:
            found = [each for each in subscription.partitions if each in found]
        return ids, sorted(found)

    def _matching(self, pattern: str) -> dict[str, tuple[str, list[TopicPartition]]]:
        chosen = re.compile(pattern)
        names = [name for name in self._admin.list_topics() if chosen.fullmatch(name)]
        return self._existing(names)

    def _existing(self, names: Iterable[str]) -> dict[str, tuple[str, list[TopicPartition]]]:
        there = list(names)
        while there:
            try:
                described = self._admin.describe_topics(there)
            except UnknownTopicOrPartitionError as error:
                missing = getattr(error, "failures", None) or dict.fromkeys(there)
                there = [name for name in there if name not in missing]
            else:
                return {
                    name: (topic.topic_id, [each.topic_partition for each in topic.partitions])
                    for name, topic in described.items()
                }
        return {}

    def require(self, subscription: Subscription) -> tuple[dict[str, str], list[TopicPartition]]:
        """As ``topics``, but what is asked for by name must be there."""
        ids, partitions = self.topics(subscription)
        for name in subscription.names:
            if name not in ids:
                raise UnknownTopicOrPartitionError(f"topic {name}")
        missing = [each for each in subscription.partitions if each not in partitions]
        if missing:
            raise UnknownTopicOrPartitionError(f"assign: {', '.join(map(str, missing))}")
        return ids, partitions

    # -- offsets

    def seen(self, topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]) -> Seen:
        """The logs of these partitions as they are now."""
        wanted = list(partitions)
        return Seen(topic_ids, self.earliest(wanted), self.latest(wanted))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.beginning_offsets(partitions)

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._consumer.end_offsets(partitions)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset not older than a time; None where all are older."""
        found = self._consumer.offsets_for_times(times)
        return {each: None if place is None else place.offset for each, place in found.items()}

    # -- the group

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What the group has committed, where it has."""
        if self._options.group_id is None:
            raise ConfigError("committed offsets are those of a group: set kafka.group.id")
        found = self._consumer.committed(partitions)
        return {each: place.offset for each, place in found.items() if place is not None}

    def mirror(self, offsets: Offsets) -> None:
        """Commit for the group how far the stream has come, for those who watch its lag.

        The stream's own memory is its checkpoint: a commit that fails is logged, and never stops the stream.
        """
        group = self._options.group_id
        now = time.monotonic()
        if group is None or self._mirrored == offsets or now < self._quiet_until:
            return
        news = {each: offset for each, offset in offsets.items() if self._mirrored.get(each) != offset}
        try:
            if news:
                self._consumer.commit(news, timeout=_MIRROR_SECONDS)
        except MillstreamError as error:
            self._quiet_until = now + _MIRROR_PAUSE_SECONDS
            log.warning("group %s: the stream's progress was not committed: %s", group, error)
        else:
            self._mirrored = dict(offsets)

    # -- patience

    def patiently(self, look: Callable[[], Seen], doubt: Callable[[Seen], bool]) -> Seen:
        """Look again, some times, while what is seen may be a passing mistake of the cluster's."""
        found = look()
        for _ in range(self._options.offset_retries):
            if not doubt(found):
                break
            time.sleep(self._options.offset_retry_ms / 1000)
            found = look()
        return found

    def close(self) -> None:
        self._consumer.close(timeout=5.0)
        self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _dotless(name: str) -> str:
    return name.replace(".", "_").replace("-", "_")
