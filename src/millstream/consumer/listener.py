"""RebalanceListener: the user's code that runs when partitions come and go."""

from __future__ import annotations

from typing import Any

from millstream.model import TopicPartition


class RebalanceListener:
    """Override what you need. All are called on the thread that polls, inside ``poll``, ``unsubscribe`` or
    ``close``.
    """

    def on_assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are new, and nothing of them has been read yet: the place to seek."""

    def on_revoked(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are given up after this call: the place to commit what is done."""

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """These partitions are gone, and may have another owner already: too late to commit.

        Unless it is overridden, ``on_revoked`` is called, as in Kafka.
        """
        self.on_revoked(consumer, partitions)
