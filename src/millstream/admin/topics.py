"""Topics: making, growing, emptying, describing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millstream.admin.session import AdminSession, Outcome, error_of, names_of, unknown_topic
from millstream.admin.values import CreatedTopic, NewTopic, TopicDescription, config_text, uuid_text
from millstream.client.blocking import Deadline
from millstream.client.cluster import Cluster
from millstream.client.targets import Controller, Node
from millstream.errors import (
    ErrorCode,
    MisuseError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from millstream.model import TopicPartition
from millstream.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_PERHAPS_DONE = (ErrorCode.REQUEST_TIMED_OUT,)
"""The change may have been made, or be made later. Asked for again, it would be refused as done already."""


class TopicAdmin(AdminSession):
    """The calls about topics."""

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
        """Make a topic. -1 leaves a number to the broker's settings.

        Raises TopicAlreadyExistsError, unless ``exist_ok``: then None is returned, and the topic left as it
        is. With ``validate_only`` the broker says whether it would, and makes nothing.
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
        """Make several topics, and return those that were made, by name. See ``create_topic``."""
        new = {topic.name: topic for topic in (_new_topic(topic) for topic in topics)}
        names_of(new)
        deadline = self._deadline(timeout)

        def ask(names: list[str]) -> Mapping[str, Outcome[CreatedTopic | None]]:
            request = CreateTopicsRequest(
                topics=[_creatable(new[name]) for name in names],
                timeout_ms=deadline.remaining_ms,
                validate_only=validate_only,
            )
            response = self._calls.call(Controller(), CreateTopicsResponse, lambda version: request, deadline)
            outcomes: dict[str, Outcome[CreatedTopic | None]] = {}
            for result in response.topics:
                outcomes[result.name] = CreatedTopic(
                    result.name, uuid_text(result.topic_id), result.num_partitions, result.replication_factor
                )
                if result.error_code:
                    error = error_of(result.error_code, f"topic {result.name}", result.error_message)
                    exists = isinstance(error, TopicAlreadyExistsError)
                    outcomes[result.name] = None if exists and exist_ok else error
            return outcomes

        made = {
            name: topic
            for name, topic in self._each(new, deadline, ask, _PERHAPS_DONE).items()
            if topic is not None
        }
        if made and not validate_only:
            self._settle(made, deadline, lambda cluster: all(_is_led(cluster, name) for name in made))
        return made

    def delete_topics(
        self, topics: str | Iterable[str], *, missing_ok: bool = False, timeout: float | None = None
    ) -> None:
        """Delete topics with all their records. Raises UnknownTopicOrPartitionError unless ``missing_ok``."""
        wanted = names_of(topics)
        deadline = self._deadline(timeout)

        def ask(names: list[str]) -> Mapping[str, Outcome[None]]:
            def build(version: int) -> DeleteTopicsRequest:
                if version >= 6:
                    states = [DeleteTopicState(name=name) for name in names]
                    return DeleteTopicsRequest(topics=states, timeout_ms=deadline.remaining_ms)
                return DeleteTopicsRequest(topic_names=names, timeout_ms=deadline.remaining_ms)

            response = self._calls.call(Controller(), DeleteTopicsResponse, build, deadline)
            outcomes: dict[str, Outcome[None]] = {}
            for result in response.responses:
                name = result.name or ""
                outcomes[name] = None
                if result.error_code:
                    error = error_of(result.error_code, f"topic {name}", result.error_message)
                    missing = isinstance(error, UnknownTopicOrPartitionError)
                    outcomes[name] = None if missing and missing_ok else error
            return outcomes

        if wanted:
            self._each(wanted, deadline, ask, _PERHAPS_DONE)
            self._settle(wanted, deadline, lambda cluster: not set(wanted) & set(cluster.topics))

    def create_partitions(
        self,
        topic: str | Mapping[str, int],
        total: int | None = None,
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Let a topic grow to ``total`` partitions; a mapping gives several topics with their totals.

        Records stay where they are, so keys may be found in another partition from then on.
        """
        totals = _totals(topic, total)
        deadline = self._deadline(timeout)

        def ask(names: list[str]) -> Mapping[str, Outcome[None]]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names
                ],
                timeout_ms=deadline.remaining_ms,
                validate_only=validate_only,
            )
            response = self._calls.call(
                Controller(), CreatePartitionsResponse, lambda version: request, deadline
            )
            return {
                result.name: error_of(result.error_code, f"topic {result.name}", result.error_message)
                if result.error_code
                else None
                for result in response.results
            }

        self._each(totals, deadline, ask, _PERHAPS_DONE)
        if not validate_only:
            self._settle(
                totals,
                deadline,
                lambda cluster: all(_has_partitions(cluster, name, count) for name, count in totals.items()),
            )

    add_partitions = create_partitions

    def list_topics(self, *, internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of all topics, in order; Kafka's own, such as __consumer_offsets, only when asked for."""
        cluster = self._calls.refresh_metadata(None, self._deadline(timeout))
        return sorted(topic.name for topic in cluster.topics.values() if internal or not topic.internal)

    def describe_topic(self, topic: str, *, timeout: float | None = None) -> TopicDescription:
        """One topic with its partitions, leaders and replicas."""
        return self.describe_topics(topic, timeout=timeout)[topic]

    def describe_topics(
        self, topics: str | Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Topics by name; all that are not internal without names. Raises UnknownTopicOrPartitionError."""
        deadline = self._deadline(timeout)
        if topics is None:
            cluster = self._calls.refresh_metadata(None, deadline)
            wanted = sorted(topic.name for topic in cluster.topics.values() if not topic.internal)
            return {name: _describe(cluster, name) for name in wanted}

        def ask(names: list[str]) -> Mapping[str, Outcome[TopicDescription]]:
            seen = self._calls.refresh_metadata(names, deadline)
            return {
                name: _describe(seen, name) if name in seen.topics else unknown_topic(name, seen)
                for name in names
            }

        return self._each(names_of(topics), deadline, ask)

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset in each partition (-1: all there are now).

        Returns where each log starts now.
        """
        offsets = {TopicPartition(*partition): offset for partition, offset in before.items()}
        deadline = self._deadline(timeout)

        def ask(partitions: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[int]]:
            by_leader, missing = self._leaders(partitions, deadline)
            outcomes: dict[TopicPartition, Outcome[int]] = dict(missing)
            for node_id, group in by_leader.items():
                wanted = {partition: offsets[partition] for partition in group}
                outcomes.update(self._delete_records_on(node_id, wanted, deadline))
            return outcomes

        return self._each(offsets, deadline, ask)

    def _delete_records_on(
        self, node_id: int, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, Outcome[int]]:
        by_topic: dict[str, list[DeleteRecordsPartition]] = {}
        for (topic, index), offset in offsets.items():
            part = DeleteRecordsPartition(partition_index=index, offset=offset)
            by_topic.setdefault(topic, []).append(part)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
            timeout_ms=deadline.remaining_ms,
        )
        response = self._calls.call(Node(node_id), DeleteRecordsResponse, lambda version: request, deadline)
        outcomes: dict[TopicPartition, Outcome[int]] = {}
        for answer in response.topics:
            for result in answer.partitions:
                partition = TopicPartition(answer.name, result.partition_index)
                error = error_of(result.error_code, f"{partition}") if result.error_code else None
                outcomes[partition] = error or result.low_watermark
        return outcomes


def _new_topic(topic: NewTopic | str) -> NewTopic:
    return NewTopic(topic) if isinstance(topic, str) else topic


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.assignments or {}
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if assignments else topic.partitions,
        replication_factor=-1 if assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(value)) for name, value in topic.configs.items()
        ],
    )


def _totals(topic: str | Mapping[str, int], total: int | None) -> dict[str, int]:
    if isinstance(topic, str):
        if total is None:
            raise MisuseError(f"how many partitions topic {topic} shall have is missing: give total")
        return {topic: total}
    return dict(topic)


def _is_led(cluster: Cluster, name: str) -> bool:
    info = cluster.topic(name)
    return info is not None and all(cluster.leader(name, one.partition) for one in info.partitions)


def _has_partitions(cluster: Cluster, name: str, count: int) -> bool:
    info = cluster.topic(name)
    return info is not None and len(info.partitions) >= count and _is_led(cluster, name)


def _describe(cluster: Cluster, name: str) -> TopicDescription:
    info = cluster.topics[name]
    return TopicDescription(info.name, uuid_text(info.topic_id), info.internal, info.partitions)
