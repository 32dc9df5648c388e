"""The driver's connection to the cluster: topics, ends of logs, and a group's committed offsets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from millstream.admin import Admin
from millstream.config import AdminConfig
from millstream.consumer import Consumer
from millstream.errors import (
    ConfigError,
    MillstreamError,
    MillstreamTimeoutError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.spark.planning.offsets import ClusterOffsets, Offsets
from millstream.spark.source.options import SourceOptions

log = logging.getLogger("millstream.spark")

_Ask = Callable[[Iterable[TopicPartition], float], Offsets]

_LOOKUP_SECONDS: Final = 5.0
"""If offsets are not found for this long, look whether the topics still exist."""
_MIRROR_SECONDS: Final = 5.0
_MIRROR_PAUSE_SECONDS: Final = 30.0
"""After a failed commit, the next one is tried after this time."""


class SourceClient:
    """An admin client and a consumer with the source's settings. To be closed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        settings = dict(options.settings)
        admin = {name: value for name, value in settings.items() if AdminConfig.knows(name)}
        self._admin = Admin(admin)
        group = {} if options.group_id is None else {"group.id": options.group_id}
        always = {"enable.auto.commit": "false", "allow.auto.create.topics": "false"}
        self._consumer = Consumer({**settings, **group, **always})
        self._patience_seconds = AdminConfig.from_settings(admin, {}).default_api_timeout_ms / 1000
        self._mirrored: dict[TopicPartition, int] = {}
        self._quiet_until = 0.0

    # -- topics

    def topics(self) -> tuple[dict[str, str], list[TopicPartition]]:
        """The ids and partitions of the selected topics that exist."""
        options = self._options
        described = self._existing(options.names or filter(options.accepts, self._admin.list_topics()))
        ids = {name: topic_id for name, (topic_id, _) in described.items()}
        found = [each for _, partitions in described.values() for each in partitions]
        if options.partitions:
            found = [each for each in options.partitions if each in found]
        return ids, sorted(found)

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

    def require(self) -> tuple[dict[str, str], list[TopicPartition]]:
        """As ``topics``. Raises UnknownTopicOrPartitionError if a topic that is named is missing.

        Partitions that are assigned and missing are left out, as in Spark's source: they may come later.
        """
        ids, partitions = self.topics()
        for name in self._options.names:
            if name not in ids:
                raise UnknownTopicOrPartitionError(f"topic {name}")
        missing = [each for each in self._options.partitions if each not in partitions]
        if missing:
            log.warning("assign: %s does not exist, and is not read", ", ".join(map(str, missing)))
        return ids, partitions

    # -- offsets

    def offsets(self, topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]) -> ClusterOffsets:
        """Where the logs of ``partitions`` start and end now; without those that have been deleted."""
        earliest = self.earliest(partitions)
        return ClusterOffsets(topic_ids, earliest, self.latest(earliest))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The start of each log; without those that have been deleted."""
        return self._of_existing(self._consumer.beginning_offsets, partitions)

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The end of each log; without those that have been deleted."""
        return self._of_existing(self._consumer.end_offsets, partitions)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at each timestamp or later; None where all records are older."""
        found = self._consumer.offsets_for_times(times)
        return {each: None if offset is None else offset.offset for each, offset in found.items()}

    def _of_existing(self, ask: _Ask, partitions: Iterable[TopicPartition]) -> Offsets:
        """Ask for offsets. A consumer waits for a topic that is gone as for one that has no leader yet."""
        wanted = list(partitions)
        deadline = time.monotonic() + self._patience_seconds
        while wanted:
            left = deadline - time.monotonic()
            try:
                return ask(wanted, max(0.0, min(left, _LOOKUP_SECONDS)))
            except MillstreamTimeoutError:
                existing = self._existing({each.topic for each in wanted})
                there = {each for _, found in existing.values() for each in found}
                if left <= 0 and there.issuperset(wanted):
                    raise
                wanted = [each for each in wanted if each in there]
        return {}

    def retry(
        self, ask: Callable[[], ClusterOffsets], is_doubtful: Callable[[ClusterOffsets], bool]
    ) -> ClusterOffsets:
        """Ask again, up to ``fetchOffset.numRetries`` times, while an answer may be a passing mistake."""
        found = ask()
        for _ in range(self._options.offset_retries):
            if not is_doubtful(found):
                break
            time.sleep(self._options.offset_retry_ms / 1000)
            found = ask()
        return found

    # -- the group

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets, without partitions that have none."""
        if self._options.group_id is None:
            raise ConfigError("committed offsets belong to a group: set kafka.group.id")
        found = self._consumer.committed(partitions)
        return {each: offset.offset for each, offset in found.items() if offset is not None}

    def mirror(self, offsets: Offsets) -> None:
        """Commit the stream's progress for the group, so that lag tools see it.

        The stream continues from its checkpoint: a commit that fails is logged, and never stops the stream.
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

    def close(self) -> None:
        self._consumer.close(timeout=5.0)
        self._admin.close()
