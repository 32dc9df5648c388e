"""Looks up the ends of logs, offsets at times and committed offsets: on the driver, and in tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from millstream.consumer import Consumer
from millstream.errors import ConfigError, MillstreamTimeoutError
from millstream.model import TopicPartition
from millstream.spark.planning.offsets import ClusterOffsets, Offsets
from millstream.spark.source.options import SourceOptions

_Ask = Callable[[Iterable[TopicPartition], float], Offsets]

_LOOKUP_SECONDS: Final = 5.0
"""If offsets are not found for this long, look whether the topics still exist."""
_PATIENCE_SECONDS: Final = 60.0


class OffsetClient:
    """Asks for offsets with a consumer that its user closes."""

    def __init__(self, consumer: Consumer, options: SourceOptions) -> None:
        self._consumer = consumer
        self._options = options
        patience = str(options.settings.get("default.api.timeout.ms", ""))
        self._patience_seconds = int(patience) / 1000 if patience.isdigit() else _PATIENCE_SECONDS

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
                topics = {each.topic for each in wanted}
                there = {each for topic in topics for each in self._consumer.partitions_for(topic)}
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

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets, without partitions that have none."""
        if self._options.group_id is None:
            raise ConfigError("committed offsets belong to a group: set kafka.group.id")
        found = self._consumer.committed(partitions)
        return {each: offset.offset for each, offset in found.items() if offset is not None}
