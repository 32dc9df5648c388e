"""The public Admin: every call on topics, settings, groups, offsets and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Self, Unpack, overload

from millstream.admin import cluster as cluster_calls
from millstream.admin import committed as committed_calls
from millstream.admin import configs as config_calls
from millstream.admin import controller as controller_calls
from millstream.admin import groups as group_calls
from millstream.admin import offsets as offset_calls
from millstream.admin import producers as producer_calls
from millstream.admin import quotas as quota_calls
from millstream.admin import security as security_calls
from millstream.admin import topics as topic_calls
from millstream.admin.call import AdminCall, Partitions, names_of
from millstream.admin.configs import ConfigEntries, Resource
from millstream.admin.offsets import OffsetSpec
from millstream.admin.resets import ResetTarget, reset_offsets
from millstream.admin.security import SCRAM
from millstream.admin.values import (
    ClusterDescription,
    ConfigResource,
    CreatedTopic,
    Features,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    NewTopic,
    OffsetReset,
    ProducerState,
    QuorumDescription,
    QuotaEntity,
    TopicDescription,
)
from millstream.client.client import Client
from millstream.config import AdminConfig
from millstream.config.keywords import AdminKeywords
from millstream.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from millstream.security.acls import Acl, AclFilter


class Admin:
    """Manages topics, groups and brokers. Any number of threads may share one; close it, or use ``with``. ::

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topic("customerCountries", partitions=3)
            print(admin.describe_group("CountryCounter").lag)

    Settings are those of Kafka's admin client, as keywords or as a mapping with Kafka's dotted names. A call
    waits for its answer for at most ``timeout`` seconds (``default_api_timeout_ms`` by default), and retries
    what is retriable. A call on several items carries out all of them, then raises the first error, which
    names the item and what to do; its ``failures`` holds every error, by item.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, **keywords: Unpack[AdminKeywords]
    ) -> None:
        self._config = AdminConfig.from_settings(settings, keywords)
        self._client = Client(self._config)
        self._client.close_with(self)

    def _call(self, timeout: float | None) -> AdminCall:
        return AdminCall(self._client, self._config, timeout)

    # -- topics

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        exist_ok: bool = False,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> CreatedTopic | None:
        """Create a topic. -1 leaves a number to the broker's settings.

        Raises TopicAlreadyExistsError; with ``exist_ok``, returns None instead and leaves the topic as it is.
        With ``validate_only``, the broker checks the request and creates nothing.
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {}, assignments)
        made = self.create_topics([topic], exist_ok=exist_ok, validate_only=validate_only, timeout=timeout)
        return made.get(name)

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        exist_ok: bool = False,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create several topics; returns those that were created, by name. See ``create_topic``."""
        call = self._call(timeout)
        return topic_calls.create_topics(call, topics, exist_ok=exist_ok, validate_only=validate_only)

    def delete_topics(
        self, topics: str | Iterable[str], *, missing_ok: bool = False, timeout: float | None = None
    ) -> None:
        """Delete topics with all their records. Raises UnknownTopicOrPartitionError unless ``missing_ok``."""
        topic_calls.delete_topics(self._call(timeout), topics, missing_ok=missing_ok)

    def create_partitions(
        self,
        topic: str | Mapping[str, int],
        total: int | None = None,
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Grow a topic to ``total`` partitions; a mapping gives several topics with their totals.

        Records stay in their partitions, so new records of a key may go to another partition than old ones.
        """
        topic_calls.create_partitions(self._call(timeout), topic, total, validate_only=validate_only)

    add_partitions = create_partitions

    def list_topics(self, *, internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of all topics, sorted; with ``internal``, also Kafka's own (__consumer_offsets)."""
        return topic_calls.list_topics(self._call(timeout), internal=internal)

    def describe_topic(self, topic: str, *, timeout: float | None = None) -> TopicDescription:
        """One topic with its partitions, leaders and replicas. Raises UnknownTopicOrPartitionError."""
        return self.describe_topics(topic, timeout=timeout)[topic]

    def describe_topics(
        self, topics: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Topics by name; without ``topics``, all but internal ones. Raises UnknownTopicOrPartitionError."""
        return topic_calls.describe_topics(self._call(timeout), topics)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition (-1: all); returns the start of each log."""
        return topic_calls.delete_records(self._call(timeout), before)

    # -- settings

    @overload
    def topic_configs(  # type: ignore[overload-overlap]  # a str is one topic, not its letters
        self, topics: str, names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> ConfigEntries: ...

    @overload
    def topic_configs(
        self, topics: Iterable[str], names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, ConfigEntries]: ...

    def topic_configs(
        self, topics: str | Iterable[str], names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> ConfigEntries | dict[str, ConfigEntries]:
        """The settings of a topic by name, or only those in ``names``; of several topics, by topic."""
        call = self._call(timeout)
        found = config_calls.describe_configs(call, Resource.TOPIC, names_of(topics), names)
        return found[topics] if isinstance(topics, str) else found

    def broker_configs(
        self, broker_id: int, names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> ConfigEntries:
        """The settings of a broker by name, or only those in ``names``."""
        broker = str(broker_id)
        return config_calls.describe_configs(self._call(timeout), Resource.BROKER, [broker], names)[broker]

    def alter_configs(
        self,
        topics: str | Iterable[str],
        changes: Mapping[str, object],
        *,
        append: Mapping[str, object] | None = None,
        subtract: Mapping[str, object] | None = None,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change some settings of one or more topics; None resets a setting to its default.

        ``append`` and ``subtract`` add to and remove from settings that are lists. Settings that are not
        named stay.
        """
        where = (self._call(timeout), Resource.TOPIC, names_of(topics))
        config_calls.alter_configs(*where, changes, append, subtract, validate_only=validate_only)

    def alter_broker_configs(
        self,
        broker_id: int,
        changes: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings of a running broker; None resets one to the value in the broker's file.

        The embedded broker raises InvalidRequestError: its settings are given at its start.
        """
        config_calls.alter_configs(
            self._call(timeout), Resource.BROKER, [str(broker_id)], changes, validate_only=validate_only
        )

    def list_config_resources(
        self, types: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """What has settings, sorted; with ``types`` (topic, broker, group, ...), only those."""
        return config_calls.list_config_resources(self._call(timeout), types)

    # -- groups

    def list_groups(
        self, states: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[GroupListing]:
        """All groups of the cluster, sorted by name; with ``states``, only those in one of them."""
        return group_calls.list_groups(self._call(timeout), states)

    def describe_group(
        self, group: str, *, lag: bool = True, timeout: float | None = None
    ) -> GroupDescription:
        """One group with its members, its offsets and its lag. Raises GroupIdNotFoundError."""
        return self.describe_groups(group, lag=lag, timeout=timeout)[group]

    def describe_groups(
        self, groups: str | Iterable[str], *, lag: bool = True, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Groups by name. ``lag=False`` leaves their partitions out, and asks for no offsets."""
        return group_calls.describe_groups(self._call(timeout), groups, lag=lag)

    def delete_groups(self, groups: str | Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets. Raises NonEmptyGroupError for members, GroupIdNotFoundError."""
        group_calls.delete_groups(self._call(timeout), groups)

    def remove_members(
        self,
        group: str,
        *,
        instance_ids: str | Iterable[str] | None = None,
        member_ids: str | Iterable[str] | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Remove members from a group, by instance id or member id; without either, all. Returns their ids.

        Their partitions go to the others at once, as after a crash of a static member. A member that still
        runs joins again. Raises GroupIdNotFoundError, and UnknownMemberIdError for an id that is not there.
        """
        return group_calls.remove_members(self._call(timeout), group, instance_ids, member_ids, reason)

    def group_offsets(
        self, group: str, partitions: Partitions | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed: for ``partitions`` (topics or partitions), or for all.

        Partitions without a commit are left out.
        """
        call = self._call(timeout)
        wanted = None if partitions is None else call.partitions(partitions)
        return committed_calls.committed_offsets(call, group, wanted)

    def delete_group_offsets(
        self, group: str, partitions: Partitions, *, timeout: float | None = None
    ) -> None:
        """Delete what a group has committed for ``partitions`` (topics or partitions).

        Raises GroupSubscribedToTopicError while members read the topic.
        """
        call = self._call(timeout)
        committed_calls.delete_offsets(call, group, call.partitions(partitions))

    def reset_offsets(
        self,
        group: str,
        to: OffsetSpec | timedelta | None = None,
        *,
        offset: int | None = None,
        shift: int | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        topics: Partitions | None = None,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetReset]:
        """Move a group to another position, from which its members start next.

        Give one of: ``to`` (``earliest``, ``latest``, a datetime or milliseconds since 1970, or a timedelta
        before now), ``offset`` (the same in each partition), ``shift`` (a number of records forward, or back
        if negative), ``offsets`` (one for each partition). ``topics`` are topics or partitions; by default,
        all topics that the group has committed. An offset outside a log becomes its start or end; a time
        after its last record, its end.

        The group must have no members (NonEmptyGroupError). ``dry_run`` changes nothing. Returns the old and
        the new offset of each partition.
        """
        target = ResetTarget(to, offset, shift, offsets)
        return reset_offsets(self._call(timeout), group, target, topics, dry_run=dry_run)

    # -- offsets and brokers

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec] | Iterable[TopicPartition] | str,
        spec: OffsetSpec = "latest",
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """An offset of each partition: its start (``earliest``), its end (``latest``), that of the first
        record at or after a time, or that of the record with the newest timestamp (``max_timestamp``).

        ``partitions`` is a topic, some partitions, or a mapping that gives each its own spec. The value is
        None if no record is that late; its timestamp is -1 for a start or an end. With
        ``isolation_level="read_committed"``, the end of a log is the start of its first open transaction.
        """
        return offset_calls.list_offsets(self._call(timeout), partitions, spec, isolation_level)

    def describe_producers(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The idempotent and transactional producers that each partition's leader remembers."""
        return producer_calls.describe_producers(self._call(timeout), partitions)

    def elect_leaders(
        self, partitions: Partitions | None = None, *, unclean: bool = False, timeout: float | None = None
    ) -> list[TopicPartition]:
        """Make the preferred replica lead each partition (default: all); returns those with a new leader.

        With ``unclean``, a partition without a leader gets any live replica, which may lack records.
        """
        return controller_calls.elect_leaders(self._call(timeout), partitions, unclean=unclean)

    def describe_features(self, *, timeout: float | None = None) -> Features:
        """The features of the cluster, such as ``metadata.version``; the embedded broker has none."""
        return controller_calls.describe_features(self._call(timeout))

    def describe_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """The controllers that keep the cluster's metadata. The embedded broker is a quorum of one."""
        return controller_calls.describe_quorum(self._call(timeout))

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """The cluster's id, its brokers and its controller."""
        return cluster_calls.describe_cluster(self._call(timeout))

    def describe_log_dirs(
        self, brokers: int | Iterable[int] | None = None, *, timeout: float | None = None
    ) -> list[LogDirDescription]:
        """The log directories of these brokers, or of all, with the size of each partition in them."""
        return cluster_calls.describe_log_dirs(self._call(timeout), brokers)

    # -- the client itself

    def create_acls(self, acls: Acl | Iterable[Acl], *, timeout: float | None = None) -> None:
        """Create rules that say who may do what; one that exists already stays as it is."""
        security_calls.create_acls(self._call(timeout), acls)

    def describe_acls(self, wanted: AclFilter | None = None, *, timeout: float | None = None) -> list[Acl]:
        """The rules that match, sorted; without a filter, all."""
        return security_calls.describe_acls(self._call(timeout), wanted or AclFilter())

    def delete_acls(self, wanted: AclFilter, *, timeout: float | None = None) -> list[Acl]:
        """Delete the rules that match, and return them."""
        return security_calls.delete_acls(self._call(timeout), wanted)

    def list_users(self, *, timeout: float | None = None) -> dict[str, dict[str, int]]:
        """The users with SCRAM credentials: by name, the iterations of each mechanism."""
        return security_calls.list_users(self._call(timeout))

    def set_password(
        self, user: str, password: str | None, mechanism: str = SCRAM, *, timeout: float | None = None
    ) -> None:
        """Add a SCRAM user, or change its password, which is never sent; None deletes the credential."""
        security_calls.set_password(self._call(timeout), user, password, mechanism)

    def describe_client_quotas(self, *, timeout: float | None = None) -> dict[QuotaEntity, dict[str, float]]:
        """All quotas of users and client ids: by whom they are for, the limits by Kafka's names."""
        return quota_calls.describe_client_quotas(self._call(timeout))

    def alter_client_quotas(
        self, entity: QuotaEntity, quotas: Mapping[str, float | None], *, timeout: float | None = None
    ) -> None:
        """Set ``producer_byte_rate``, ``consumer_byte_rate`` or ``request_percentage``; None removes one."""
        quota_calls.alter_client_quotas(self._call(timeout), entity, quotas)

    def metrics(self) -> dict[str, int | float]:
        """Counters: requests, bytes and latencies of the connections."""
        return self._client.metrics.snapshot()

    def close(self, timeout: float | None = 5.0) -> None:
        """Close the connections; calls in other threads fail with ClosedError. Closing again does nothing."""
        self._client.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
