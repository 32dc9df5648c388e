"""Handles CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from typing import Final

from millstream.broker.dispatch import handles
from millstream.broker.handlers.configs import topic_config_values
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import OFFSETS_TOPIC, Topic
from millstream.broker.services import Services
from millstream.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from millstream.wire.messages.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.wire.schema import ZERO_UUID

MAX_PARTITIONS: Final = 10_000
"""The most partitions that a topic may have, and that one request may create, as in Kafka."""


@handles(CREATE_TOPICS)
def create_topics(
    broker: Services, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create each topic durably, or say why not. A name that is given twice is refused."""
    times = Counter(topic.name for topic in request.topics)
    total = sum(_asked_partitions(broker, topic) for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreateTopicsResponse(
        topics=[
            _create(broker, wanted, times[name], total, request.validate_only, context)
            for name, wanted in by_name.items()
        ]
    )


def _asked_partitions(broker: Services, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return broker.settings.num_partitions if wanted.num_partitions == -1 else max(0, wanted.num_partitions)


def _create(
    broker: Services,
    wanted: CreatableTopic,
    times: int,
    total: int,
    validate_only: bool,
    context: RequestContext,
) -> CreatableTopicResult:
    try:
        if times > 1:
            raise InvalidRequestError(f"{wanted.name} is named more than once in the request")
        # As in Kafka, check first the name, then the settings, then the numbers.
        broker.topics.validate_new(wanted.name, {})
        configs = _given_configs(wanted)
        broker.topics.validate_new(wanted.name, configs)
        partitions = _partition_count(broker, wanted)
        if total > MAX_PARTITIONS:
            raise PolicyViolationError(
                f"{total} partitions in one request: the embedded broker creates {MAX_PARTITIONS} at a time"
            )
        broker.quotas.charge(context, partitions, strict_since=6)
        topic = None if validate_only else broker.topics.create(wanted.name, partitions, configs)
    except ConfigError as error:
        code, message = int(ErrorCode.INVALID_CONFIG), str(error)
        return CreatableTopicResult(name=wanted.name, error_code=code, error_message=message)
    except BrokerError as error:
        code, message = error.code, error.detail or str(error)
        return CreatableTopicResult(name=wanted.name, error_code=code, error_message=message)
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic.topic_id if topic is not None else ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=name, value=value, config_source=source)
            for name, value, source in topic_config_values(broker, configs)
        ],
    )


def _given_configs(wanted: CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in wanted.configs if config.value is None]
    if missing:
        raise InvalidConfigError(f"no value for {', '.join(missing)}")
    return {config.name: config.value for config in wanted.configs if config.value is not None}


def _partition_count(broker: Services, wanted: CreatableTopic) -> int:
    """Return how many partitions are requested, by number or by replica assignments."""
    if wanted.assignments:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            raise InvalidRequestError("give either replica assignments or a number of partitions, not both")
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise InvalidReplicaAssignmentError("partitions must be numbered from 0, without gaps")
        if any(assignment.broker_ids != [broker.node_id] for assignment in wanted.assignments):
            raise InvalidReplicaAssignmentError(f"the only broker is number {broker.node_id}")
        return _checked_count(len(indexes))
    if wanted.replication_factor == 0 or wanted.replication_factor < -1:
        raise InvalidReplicationFactorError(f"replication factor {wanted.replication_factor}: use 1")
    default = wanted.num_partitions == -1
    count = broker.settings.num_partitions if default else _checked_count(wanted.num_partitions)
    if wanted.replication_factor > 1:
        raise InvalidReplicationFactorError(
            f"replication factor {wanted.replication_factor}: there is one broker, so use 1"
        )
    return count


def _checked_count(count: int) -> int:
    if count < 1:
        raise InvalidPartitionsError(f"{count} partitions: a topic has at least 1")
    if count > MAX_PARTITIONS:
        raise PolicyViolationError(f"{count} partitions: the embedded broker allows {MAX_PARTITIONS} a topic")
    return count


@handles(DELETE_TOPICS)
def delete_topics(
    broker: Services, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete each topic, by name or by id. One that is named twice is not deleted."""
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    ambiguous = [each for each in wanted if _is_ambiguous(each)]  # answered each time, as in Kafka
    times = Counter((each.name, each.topic_id) for each in wanted if not _is_ambiguous(each))
    once = {(each.name, each.topic_id): each for each in wanted if not _is_ambiguous(each)}
    disabled = ErrorCode.TOPIC_DELETION_DISABLED if context.version >= 3 else ErrorCode.INVALID_REQUEST
    responses = [_delete(broker, each, 1, disabled, context) for each in ambiguous]
    responses += [_delete(broker, each, times[key], disabled, context) for key, each in once.items()]
    return DeleteTopicsResponse(responses=responses)


def _is_ambiguous(wanted: DeleteTopicState) -> bool:
    return (wanted.name is None) == (wanted.topic_id == ZERO_UUID)


def _delete(
    broker: Services, wanted: DeleteTopicState, times: int, disabled: ErrorCode, context: RequestContext
) -> DeletableTopicResult:
    try:
        if not broker.settings.delete_topic_enable:
            raise for_code(disabled)("delete.topic.enable is false on this broker")
        if times > 1:
            raise InvalidRequestError("the topic is named more than once in the request")
        topic = _to_delete(broker, wanted)
        broker.quotas.charge(context, len(topic.partitions), strict_since=5)
        broker.delete_topic(topic)
    except BrokerError as error:
        return DeletableTopicResult(
            name=wanted.name,
            topic_id=wanted.topic_id,
            error_code=error.code,
            error_message=error.detail or str(error),
        )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE)


def _to_delete(broker: Services, wanted: DeleteTopicState) -> Topic:
    if _is_ambiguous(wanted):
        raise InvalidRequestError("name the topic or give its id, and not both")
    topic = (
        broker.topics.get(wanted.name)
        if wanted.name is not None
        else broker.topics.get_by_id(wanted.topic_id)
    )
    if topic is None:
        if wanted.name is None:
            raise UnknownTopicIdError("no topic has this id")
        raise UnknownTopicOrPartitionError(f"there is no topic {wanted.name}")
    _check_not_internal(topic)
    return topic


def _check_not_internal(topic: Topic) -> None:
    """Refuse changes of ``__consumer_offsets``: its partition count decides where each group is stored."""
    if topic.is_internal:
        raise InvalidTopicError(f"{topic.name} is an internal topic: it cannot be changed")


@handles(CREATE_PARTITIONS)
def create_partitions(
    broker: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Grow each topic to the requested number of partitions."""
    times = Counter(topic.name for topic in request.topics)
    by_name = {topic.name: topic for topic in request.topics}
    return CreatePartitionsResponse(
        results=[
            _grow(broker, wanted, times[name], request.validate_only, context)
            for name, wanted in by_name.items()
        ]
    )


def _grow(
    broker: Services, wanted: CreatePartitionsTopic, times: int, validate_only: bool, context: RequestContext
) -> CreatePartitionsTopicResult:
    try:
        if times > 1:
            raise InvalidRequestError(f"{wanted.name} is named more than once in the request")
        topic = broker.topics.get(wanted.name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {wanted.name}")
        _check_not_internal(topic)
        count = _larger_count(broker, topic, wanted)
        broker.quotas.charge(context, count - len(topic.partitions), strict_since=3)
        if not validate_only:
            broker.topics.add_partitions(topic, count)
    except BrokerError as error:
        return CreatePartitionsTopicResult(
            name=wanted.name, error_code=error.code, error_message=error.detail or str(error)
        )
    return CreatePartitionsTopicResult(name=wanted.name, error_code=ErrorCode.NONE)


def _larger_count(broker: Services, topic: Topic, wanted: CreatePartitionsTopic) -> int:
    now = len(topic.partitions)
    if wanted.count <= now:
        raise InvalidPartitionsError(
            f"the number of partitions of {topic.name} is {now}: it can only grow, so not to {wanted.count}"
        )
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - now:
            raise InvalidReplicaAssignmentError(f"{wanted.count - now} partitions are added: assign as many")
        if any(assignment.broker_ids != [broker.node_id] for assignment in wanted.assignments):
            raise InvalidReplicaAssignmentError(f"the only broker is number {broker.node_id}")
    return _checked_count(wanted.count)


@handles(DELETE_RECORDS)
def delete_records(
    broker: Services, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Delete the records of each partition before an offset; -1 deletes all."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete_records(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete_records(
    broker: Services, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    low_watermark, code = -1, int(ErrorCode.NONE)
    try:
        partition = broker.topics.partition(topic, wanted.partition_index)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"there is no partition {wanted.partition_index} of {topic}")
        if partition.topic == OFFSETS_TOPIC:
            raise InvalidTopicError(f"{topic} is an internal topic: its records cannot be deleted")
        if not partition.log.config.deletes:
            raise PolicyViolationError(
                f"{topic} has no delete in its cleanup.policy: its records cannot be deleted"
            )
        if wanted.offset < -1:
            raise OffsetOutOfRangeError(f"{wanted.offset} is not an offset")
        low_watermark = partition.log.delete_records(wanted.offset)
    except BrokerError as error:
        code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )
