"""Topics: create, grow, describe and delete them, and delete their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.admin.call import AdminCall, Outcome, by_topic, names_of, outcome_of, unknown_topic
from millstream.admin.values import CreatedTopic, NewTopic, TopicDescription, config_text, uuid_text
from millstream.client.cluster import Cluster
from millstream.client.targets import Controller, Node
from millstream.errors import (
    ErrorCode,
    MillstreamError,
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
"""The change may have been made, or be made later. A retry would then be refused as already done."""


def create_topics(
    call: AdminCall, topics: Iterable[NewTopic | str], *, exist_ok: bool, validate_only: bool
) -> dict[str, CreatedTopic]:
    """Create topics, wait until they have leaders, and return those that were created, by name."""
    given = (NewTopic(topic) if isinstance(topic, str) else topic for topic in topics)
    new = {topic.name: topic for topic in given}
    names_of(new)

    def ask(names: list[str]) -> Mapping[str, Outcome[CreatedTopic | None]]:
        request = CreateTopicsRequest(
            topics=[_creatable(new[name]) for name in names],
            timeout_ms=call.deadline.remaining_ms,
            validate_only=validate_only,
        )
        return {
            result.name: _unless(
                TopicAlreadyExistsError if exist_ok else None,
                _topic_outcome(
                    CreatedTopic(
                        result.name,
                        uuid_text(result.topic_id),
                        result.num_partitions,
                        result.replication_factor,
                    ),
                    result,
                ),
            )
            for result in call.send(Controller(), CreateTopicsResponse, request).topics
        }

    outcomes = call.each(new, ask, _PERHAPS_DONE)
    made = {name: topic for name, topic in outcomes.items() if topic is not None}
    if made and not validate_only:
        call.settle(made, lambda cluster: all(_has_leaders(cluster, name) for name in made))
    return made


def delete_topics(call: AdminCall, topics: str | Iterable[str], *, missing_ok: bool) -> None:
    """Delete topics, and wait until they are gone from the metadata."""
    wanted = names_of(topics)

    def ask(names: list[str]) -> Mapping[str, Outcome[None]]:
        def build(version: int) -> DeleteTopicsRequest:
            if version >= 6:
                states = [DeleteTopicState(name=name) for name in names]
                return DeleteTopicsRequest(topics=states, timeout_ms=call.deadline.remaining_ms)
            return DeleteTopicsRequest(topic_names=names, timeout_ms=call.deadline.remaining_ms)

        missing = UnknownTopicOrPartitionError if missing_ok else None
        return {
            result.name or "": _unless(missing, _topic_outcome(None, result))
            for result in call.send(Controller(), DeleteTopicsResponse, build).responses
        }

    if wanted:
        call.each(wanted, ask, _PERHAPS_DONE)
        call.settle(wanted, lambda cluster: not set(wanted) & set(cluster.topics))


def create_partitions(
    call: AdminCall, topic: str | Mapping[str, int], total: int | None, *, validate_only: bool
) -> None:
    """Grow topics to their totals, and wait until the new partitions have leaders."""
    if isinstance(topic, str):
        if total is None:
            raise MisuseError(f"the number of partitions for topic {topic} is missing: give total")
        topic = {topic: total}
    totals = dict(topic)

    def ask(names: list[str]) -> Mapping[str, Outcome[None]]:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names],
            timeout_ms=call.deadline.remaining_ms,
            validate_only=validate_only,
        )
        response = call.send(Controller(), CreatePartitionsResponse, request)
        return {result.name: _topic_outcome(None, result) for result in response.results}

    def has_grown(cluster: Cluster) -> bool:
        return all(
            _has_leaders(cluster, name) and len(cluster.topics[name].partitions) >= count
            for name, count in totals.items()
        )

    call.each(totals, ask, _PERHAPS_DONE)
    if not validate_only:
        call.settle(totals, has_grown)


def list_topics(call: AdminCall, *, internal: bool) -> list[str]:
    """The names of all topics, sorted; internal ones only if asked for."""
    return _names(call.metadata(None), internal=internal)


def describe_topics(call: AdminCall, topics: str | Iterable[str] | None) -> dict[str, TopicDescription]:
    """Topics by name; without names, all that are not internal."""
    if topics is None:
        cluster = call.metadata(None)
        return {name: _describe(cluster, name) for name in _names(cluster)}

    def ask(names: list[str]) -> Mapping[str, Outcome[TopicDescription]]:
        seen = call.metadata(names)
        return {
            name: _describe(seen, name) if name in seen.topics else unknown_topic(name, seen)
            for name in names
        }

    return call.each(names_of(topics), ask)


def delete_records(call: AdminCall, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records before an offset of each partition; returns the new start of each log."""
    offsets = {TopicPartition(*partition): offset for partition, offset in before.items()}

    def ask(node_id: int, partitions: list[TopicPartition]) -> Mapping[TopicPartition, Outcome[int]]:
        grouped = by_topic(
            (one, DeleteRecordsPartition(partition_index=one.partition, offset=offsets[one]))
            for one in partitions
        )
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=parts) for name, parts in grouped.items()],
            timeout_ms=call.deadline.remaining_ms,
        )
        return {
            (partition := TopicPartition(topic.name, result.partition_index)): outcome_of(
                result.low_watermark, result.error_code, f"{partition}"
            )
            for topic in call.send(Node(node_id), DeleteRecordsResponse, request).topics
            for result in topic.partitions
        }

    return call.each_by_leader(offsets, ask)


def _topic_outcome(value: Any, result: Any) -> Outcome[Any]:
    """The outcome for one topic of a response."""
    return outcome_of(value, result.error_code, f"topic {result.name}", result.error_message)


def _unless(accepted: type[MillstreamError] | None, outcome: Outcome[Any]) -> Outcome[Any]:
    """The outcome, or None where it is an error that the caller accepts."""
    return None if accepted is not None and isinstance(outcome, accepted) else outcome


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


def _has_leaders(cluster: Cluster, name: str) -> bool:
    info = cluster.topic(name)
    return info is not None and all(cluster.leader(name, one.partition) for one in info.partitions)


def _names(cluster: Cluster, *, internal: bool = False) -> list[str]:
    return sorted(topic.name for topic in cluster.topics.values() if internal or not topic.internal)


def _describe(cluster: Cluster, name: str) -> TopicDescription:
    info = cluster.topics[name]
    return TopicDescription(info.name, uuid_text(info.topic_id), info.internal, info.partitions)
