"""RebalanceListener: the user's code that runs when partitions are assigned, revoked or lost."""

from __future__ import annotations

from typing import Any

from millstream.model import TopicPartition


class RebalanceListener:
    """Override what you need. All are called on the thread that polls, inside ``poll``, ``unsubscribe`` or
    ``close``.
    """

    def on_assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are new, and nothing of them has been read yet: seek here."""

    def on_revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are given up after this call: commit here what is done."""

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are lost, and may have another owner already: it is too late to commit.

        Unless it is overridden, ``on_revoked`` is called, as in Kafka.
        """
        self.on_revoked(consumer, partitions)
