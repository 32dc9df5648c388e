"""A rebalance listener: commit before a partition goes to another member.

Start it twice and stop one of them: each prints its partitions, and no record is printed twice.
"""

import argparse
import sys
from contextlib import suppress

from millstream import Consumer, RebalanceListener, Record, TopicPartition


class Bookkeeper(RebalanceListener):
    """Tracks processed offsets and commits them in time. Called on the polling thread."""

    def __init__(self) -> None:
        self.next_offsets: dict[TopicPartition, int] = {}

    def done(self, record: Record) -> None:
        """Note that a record is processed."""
        self.next_offsets[record.topic_partition] = record.offset + 1

    def on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called with new partitions, before any of their records are read."""
        print("assigned", " ".join(map(str, partitions)) or "nothing new", flush=True)

    def on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called before another member gets these partitions. It continues at the committed offsets."""
        consumer.commit(self.next_offsets)
        self._forget(partitions)
        print("revoked", *partitions, flush=True)

    def on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Called when partitions are gone, as this member was silent for too long: too late to commit."""
        self._forget(partitions)
        print("lost", *partitions, flush=True)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.next_offsets.pop(partition, None)


def main() -> None:
    """Print and commit until Ctrl-C, or until ``--max-records`` were printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="customerCountries")
    parser.add_argument("--group", default="rebalance-listener")
    parser.add_argument("--max-records", type=int, default=sys.maxsize)
    options = parser.parse_args()

    count = 0
    bookkeeper = Bookkeeper()
    with (
        Consumer(
            bootstrap_servers=options.bootstrap_servers,
            group_id=options.group,
            key_deserializer="string",
            value_deserializer="string",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy="cooperative-sticky",  # only partitions that move are revoked
        ) as consumer,
        suppress(KeyboardInterrupt),
    ):
        consumer.subscribe([options.topic], listener=bookkeeper)
        while count < options.max_records:
            for record in consumer.poll(timeout=1.0):
                print(f"{record.topic}-{record.partition} @{record.offset}: {record.key} = {record.value}")
                bookkeeper.done(record)
                count += 1
            consumer.commit_async(bookkeeper.next_offsets)
    # close() has called on_revoked, which committed the rest.


if __name__ == "__main__":
    main()
