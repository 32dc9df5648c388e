"""What the tests of the writer share: writes with the format ``millstream``, and what is then in topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream import Admin, Consumer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Writing:
    """Writes frames to the topics of a broker, and reads them back."""

    servers: str
    admin: Admin
    source: str = "millstream"

    def write(self, frame: DataFrame, *, mode: str | None = "append", **options: str) -> None:
        writer = frame.write.format(self.source).option("kafka.bootstrap.servers", self.servers)
        if mode is not None:
            writer = writer.mode(mode)
        writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()

    def records(self, topic: str) -> list[Any]:
        """All records of a topic, by partition and offset."""
        partitions = [each.topic_partition for each in self.admin.describe_topics([topic])[topic].partitions]
        found: list[Any] = []
        with Consumer(bootstrap_servers=self.servers, max_poll_records=100_000) as consumer:
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while any(consumer.position(each) < ends[each] for each in partitions):
                found += consumer.poll(1.0)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def values(self, topic: str) -> list[str]:
        """The values of a topic, sorted."""
        return sorted(record.value.decode() for record in self.records(topic))

    def ends(self, topic: str) -> dict[int, int]:
        """The number of records in each partition."""
        described = self.admin.describe_topics([topic])[topic].partitions
        with Consumer(bootstrap_servers=self.servers) as consumer:
            ends = consumer.end_offsets([TopicPartition(topic, each.partition) for each in described])
        return {each.partition: end for each, end in ends.items()}
