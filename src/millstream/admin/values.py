"""The values that ``Admin`` takes and returns. All are frozen."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.client.cluster import BrokerInfo, PartitionInfo
from millstream.model import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 leaves a number to the broker's settings.

    ``assignments`` may name the brokers of each partition instead of the two numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, object] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


DEFAULT_ENTITY = "<default>"
"""The name of every user, or client id, that has no quota of its own."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for: a user, a client id or both, or an IP address.

    ``"<default>"`` is everyone without their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id), ("ip", self.ip))
        return ", ".join(f"{kind} {name}" for kind, name in named if name is not None)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created; the numbers are -1 if the broker is too old to return them."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. ``topic_id`` is in Kafka's own spelling; empty if there is none."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a topic or broker. ``value`` is None for a secret, or if nothing is set.

    ``source`` says where the value comes from: ``topic``, ``broker`` (dynamic, for one), ``cluster``
    (dynamic, for all), ``file`` (the broker's own), ``default``, or another of Kafka's sources.
    """

    name: str
    value: str | None
    source: str
    read_only: bool = False
    sensitive: bool = False
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster and its brokers."""

    cluster_id: str
    controller: BrokerInfo | None
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group in a list. ``state`` and ``type`` are empty if the broker is too old to return them."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group, its topics and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A group's lag in one partition. ``committed`` and ``lag`` are None without a commit.

    ``member`` is the member that reads it now. ``end`` is None for a partition that no longer exists.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    metadata: str = ""
    member: GroupMember | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its members, and its partitions with the lag in each."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: BrokerInfo | None
    members: tuple[GroupMember, ...]
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """The sum of all known lags."""
        return sum(partition.lag or 0 for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A group's offset before (None: no commit) and after. ``clamped``: the log lacks the wanted offset."""

    topic: str
    partition: int
    before: int | None
    after: int
    clamped: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One partition in a log directory. ``is_future``: it is being moved there."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker; the bytes are -1 if the broker does not return them."""

    broker_id: int
    path: str
    replicas: tuple[ReplicaSize, ...]
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition's leader remembers. -1 stands for none, as in Kafka.

    ``transaction_start`` is the first offset of its open transaction, where read_committed readers wait.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int = -1
    transaction_start: int = -1


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster (KIP-584): the level of each that is in use, and the levels that can be.

    ``epoch`` is the version of ``finalized``; -1 if the broker has none.
    """

    finalized: Mapping[str, int]
    supported: Mapping[str, tuple[int, int]]
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A replica of the cluster's metadata. The times are epoch milliseconds, -1 if they are not known."""

    node_id: int
    log_end_offset: int
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The controllers that keep the cluster's metadata (KIP-595), and the brokers that follow them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """Something that has settings. ``type``: topic, broker, broker_logger, client_metrics or group."""

    type: str
    name: str


def uuid_text(raw: bytes) -> str:
    """An id as Kafka's tools write it; empty for none."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode() if any(raw) else ""


def config_text(value: object) -> str:
    """A setting's value as Kafka reads it: ``true``, not ``True``; lists with commas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(config_text, value))
    return str(value)
