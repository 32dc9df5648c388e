"""Reads of all topics and of partition sizes, for the command line and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import BrokerError, UnknownTopicOrPartitionError
from millstream.model import TopicPartition

if TYPE_CHECKING:
    from millstream.admin import Admin, TopicDescription

_TRIES: Final = 10


def describe_all_topics(
    admin: Admin, *, internal: bool, timeout: float | None = None
) -> dict[str, TopicDescription]:
    """All topics. Lists them again when one is deleted between the two requests."""
    for tries_left in reversed(range(_TRIES)):
        names = admin.list_topics(internal=internal, timeout=timeout)
        try:
            return admin.describe_topics(names, timeout=timeout) if names else {}
        except UnknownTopicOrPartitionError:
            if not tries_left:
                raise
    raise AssertionError("the last try has returned or raised")


def partition_sizes(admin: Admin, *, timeout: float | None = None) -> dict[TopicPartition, int]:
    """The bytes of each partition on disk; empty where the broker does not allow the request."""
    try:
        directories = admin.describe_log_dirs(timeout=timeout)
    except BrokerError:
        return {}
    sizes: dict[TopicPartition, int] = {}
    for replica in (replica for directory in directories for replica in directory.replicas):
        if not replica.is_future:
            one = TopicPartition(replica.topic, replica.partition)
            sizes[one] = max(replica.size_bytes, sizes.get(one, 0))
    return sizes
