"""The driver's connection to the cluster: topics, their offsets, and progress that a group sees."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from millstream.admin import Admin
from millstream.config import AdminConfig
from millstream.consumer import Consumer
from millstream.errors import (
    MillstreamError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.spark.planning.offsets import Offsets
from millstream.spark.source.offset_client import OffsetClient
from millstream.spark.source.options import SourceOptions

log = logging.getLogger("millstream.spark")

_MIRROR_SECONDS: Final = 5.0
_MIRROR_PAUSE_SECONDS: Final = 30.0
"""After a failed commit, the next one is tried after this time."""


class SourceClient(OffsetClient):
    """An admin client and a consumer with the source's settings. To be closed."""

    def __init__(self, options: SourceOptions) -> None:
        settings = dict(options.settings)
        self._admin = Admin({name: value for name, value in settings.items() if AdminConfig.knows(name)})
        group = {} if options.group_id is None else {"group.id": options.group_id}
        always = {"enable.auto.commit": "false", "allow.auto.create.topics": "false"}
        super().__init__(Consumer({**settings, **group, **always}), options)
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

    # -- the group

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
