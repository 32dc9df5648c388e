"""The metrics of topics and groups, by kafka_exporter's names where it has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from millstream.metrics.declarations import Labels, Metric, MetricReading

_PARTITION: Final = ("topic", "partition")
_GROUP: Final = ("consumergroup",)
_GROUP_TOPIC: Final = ("consumergroup", "topic")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS: Final = Metric("kafka_brokers", "gauge", "Brokers of the cluster.")
PARTITIONS: Final = Metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", ("topic",))
END: Final = Metric(
    "kafka_topic_partition_current_offset", "gauge", "The end offset of a partition.", _PARTITION
)
START: Final = Metric(
    "kafka_topic_partition_oldest_offset", "gauge", "The first offset of a partition.", _PARTITION
)
SIZE: Final = Metric("millstream_topic_size_bytes", "gauge", "Bytes of a topic's logs.", ("topic",))
COMMITTED: Final = Metric(
    "kafka_consumergroup_current_offset", "gauge", "The offset that a group committed.", _GROUP_PARTITION
)
COMMITTED_SUM: Final = Metric(
    "kafka_consumergroup_current_offset_sum",
    "gauge",
    "The sum of the offsets that a group committed for a topic.",
    _GROUP_TOPIC,
)
LAG: Final = Metric(
    "kafka_consumergroup_lag",
    "gauge",
    "Offsets between what a group committed and the end of the partition.",
    _GROUP_PARTITION,
)
LAG_SUM: Final = Metric(
    "kafka_consumergroup_lag_sum", "gauge", "The sum of a group's lag for a topic.", _GROUP_TOPIC
)
LAG_SECONDS: Final = Metric(
    "millstream_consumergroup_lag_seconds",
    "gauge",
    "The age of the next record that a group has to read; 0 without lag. From the broker only.",
    _GROUP_PARTITION,
)
MEMBERS: Final = Metric("kafka_consumergroup_members", "gauge", "Members of a group.", _GROUP)
STATE: Final = Metric(
    "millstream_consumergroup_state",
    "gauge",
    "1 for the state that a group is in.",
    ("consumergroup", "state"),
)
GENERATION: Final = Metric(
    "millstream_consumergroup_generation",
    "gauge",
    "A group's generation: each rebalance raises it. From the broker only.",
    _GROUP,
)
ALL: Final = (
    BROKERS,
    PARTITIONS,
    END,
    START,
    SIZE,
    COMMITTED,
    COMMITTED_SUM,
    LAG,
    LAG_SUM,
    LAG_SECONDS,
    MEMBERS,
    STATE,
    GENERATION,
)


class ClusterReadings:
    """Collects the values of one moment."""

    def __init__(self, brokers: int) -> None:
        self._values: dict[Metric, dict[Labels, float]] = {metric: {} for metric in ALL}
        self._values[BROKERS][()] = brokers

    def set(self, metric: Metric, labels: Sequence[str], value: float | None) -> None:
        """Note a value; None is one that is not known."""
        if value is not None:
            self._values[metric][tuple(labels)] = value

    def add_partition(self, topic: str, partition: int, start: int | None, end: int | None) -> None:
        """Note the offsets of a partition."""
        self.set(START, (topic, str(partition)), start)
        self.set(END, (topic, str(partition)), end)

    def add_commit(self, group: str, topic: str, partition: int, committed: int, end: int | None) -> None:
        """Note what a group committed, and its lag."""
        labels = (group, topic, str(partition))
        self.set(COMMITTED, labels, committed)
        self._add(COMMITTED_SUM, labels[:2], committed)
        if end is not None:
            lag = max(0, end - committed)
            self.set(LAG, labels, lag)
            self._add(LAG_SUM, labels[:2], lag)

    def add_group(self, group: str, state: str, members: int) -> None:
        """Note a group, with members or without."""
        self.set(MEMBERS, (group,), members)
        self.set(STATE, (group, state), 1)

    def readings(self) -> Iterator[MetricReading]:
        """Return everything that was noted; nothing of a metric without values."""
        return (MetricReading(metric, values) for metric, values in self._values.items() if values)

    def _add(self, metric: Metric, labels: Labels, value: float) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0) + value
