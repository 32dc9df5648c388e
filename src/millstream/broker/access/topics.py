"""What requests about topics need."""

from __future__ import annotations

from typing import Any, Final

from millstream.broker.access.rules import (
    NOT_REQUESTED,
    REFUSED,
    Asker,
    Each,
    add_answers,
    named_or_identified,
)
from millstream.broker.request_context import RequestContext
from millstream.errors import ErrorCode
from millstream.security.acls import CLUSTER_NAME, Operation, ResourceType
from millstream.wire.messages.configs import (
    AlterConfigsResourceResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResourceResponse,
)
from millstream.wire.messages.metadata import (
    DescribedTopic,
    DescribeTopicPartitionsResponse,
    MetadataResponseTopic,
    TopicRequest,
)
from millstream.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderTopicResult,
)
from millstream.wire.messages.produce import (
    DescribeProducersPartitionResponse,
    DescribeProducersTopicResponse,
    InitProducerIdResponse,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from millstream.wire.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from millstream.wire.records.batch_header import TRANSACTIONAL_BIT, first_attributes
from millstream.wire.schema import ZERO_UUID, Response

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _topics(operation: Operation, answers: str, refused: Any, name: Any = lambda item, _: item.name) -> Each:
    return Each(operation, ResourceType.TOPIC, "topics", answers, refused, name)


def _refused_produce(topic: Any, error: int) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=each.index, error_code=error, base_offset=-1)
            for each in topic.partition_data
        ],
    )


class ProducedTopics:
    """WRITE of each topic, and of the transactional id if any batch is transactional."""

    _topics = Each(
        Operation.WRITE,
        ResourceType.TOPIC,
        "topic_data",
        "responses",
        _refused_produce,
        named_or_identified,
    )

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        transaction = request.transactional_id
        resource_type = ResourceType.TRANSACTIONAL_ID
        if _is_transactional(request) and (
            transaction is None or not asker.may(Operation.WRITE, resource_type, transaction)
        ):
            error = REFUSED[resource_type]
            refused = [_refused_produce(topic, error) for topic in request.topic_data]
            request.topic_data = []
            add_answers(context, "responses", refused)
            return None
        return self._topics.check(request, context, asker)


def _is_transactional(request: Any) -> bool:
    partitions = (one for topic in request.topic_data for one in topic.partition_data)
    return any(first_attributes(one.records) & TRANSACTIONAL_BIT for one in partitions)


class InitializedProducer:
    """WRITE of the transactional id; without one IDEMPOTENT_WRITE of the cluster, or WRITE of any topic."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if request.transactional_id is not None:
            resource_type = ResourceType.TRANSACTIONAL_ID
            allowed = asker.may(Operation.WRITE, resource_type, request.transactional_id)
        else:
            resource_type = ResourceType.CLUSTER
            allowed = asker.may(Operation.IDEMPOTENT_WRITE, resource_type) or asker.may_any(
                Operation.WRITE, ResourceType.TOPIC
            )
        if allowed:
            return None
        return InitProducerIdResponse(error_code=REFUSED[resource_type], producer_epoch=-1)


class FetchedTopics:
    """READ of each topic. The handler asks, because a fetch session remembers topics between requests."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        context.permits_topic = lambda name: asker.may(Operation.READ, ResourceType.TOPIC, name)
        return None


LISTED_OFFSETS = _topics(
    Operation.DESCRIBE,
    "topics",
    lambda topic, error: ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    ),
)


class AskedEpochs:
    """CLUSTER_ACTION, as brokers have it, or DESCRIBE of each topic (KIP-320)."""

    _each = _topics(
        Operation.DESCRIBE,
        "topics",
        lambda topic, error: OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                EpochEndOffset(error_code=error, partition=each.partition) for each in topic.partitions
            ],
        ),
        lambda topic, _: topic.topic,
    )

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if asker.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            return None
        return self._each.check(request, context, asker)


DESCRIBED_PRODUCERS = _topics(
    Operation.READ,
    "topics",
    lambda topic, error: DescribeProducersTopicResponse(
        name=topic.name,
        partitions=[
            DescribeProducersPartitionResponse(partition_index=index, error_code=error, active_producers=[])
            for index in topic.partition_indexes
        ],
    ),
)

DELETED_RECORDS = _topics(
    Operation.DELETE,
    "topics",
    lambda topic, error: DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(
                partition_index=each.partition_index, low_watermark=-1, error_code=error
            )
            for each in topic.partitions
        ],
    ),
)

GROWN_TOPICS = _topics(
    Operation.ALTER,
    "results",
    lambda topic, error: CreatePartitionsTopicResult(name=topic.name, error_code=error),
)


class DeletedTopics:
    """DELETE of the cluster or of each topic.

    Whoever may describe a topic learns that it is absent; a topic that is given by its id is named to no one
    else.
    """

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if asker.may(Operation.DELETE, ResourceType.CLUSTER):
            return None
        items = "topic_names" if context.version < 6 else "topics"
        answers = [(item, self._refused(item, asker)) for item in getattr(request, items)]
        setattr(request, items, [item for item, refused in answers if refused is None])
        add_answers(context, "responses", [refused for _, refused in answers if refused is not None])
        return None

    def _refused(self, item: Any, asker: Asker) -> DeletableTopicResult | None:
        by_name = isinstance(item, str) or item.name
        name = item if isinstance(item, str) else named_or_identified(item, asker)
        if name is None or asker.may(Operation.DELETE, ResourceType.TOPIC, name):
            return None
        may_describe = asker.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if by_name and may_describe and asker.topics.get(name) is None:
            return None
        return DeletableTopicResult(
            name=name if by_name or may_describe else None,
            topic_id=ZERO_UUID if by_name else item.topic_id,
            error_code=_REFUSED,
        )


class CreatedTopics:
    """CREATE of the cluster or of each topic; its settings are told only to who may describe them."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        refused = [topic for topic in request.topics if not may_create(asker, topic.name)]
        request.topics = [topic for topic in request.topics if may_create(asker, topic.name)]
        answers = [CreatableTopicResult(name=topic.name, error_code=_REFUSED) for topic in refused]

        def complete(response: Any) -> None:
            for topic in response.topics:
                if not asker.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
                    topic.topic_config_error_code = 0 if topic.error_code else _REFUSED
                    topic.num_partitions = topic.replication_factor = -1
                    topic.configs = []
            response.topics.extend(answers)

        context.amend(complete)
        return None


def may_create(asker: Asker, topic: str) -> bool:
    """Whether a topic may be created: as any topic, or by its name."""
    return asker.may(Operation.CREATE, ResourceType.CLUSTER) or asker.may(
        Operation.CREATE, ResourceType.TOPIC, topic
    )


class DescribedTopics:
    """DESCRIBE of each topic, and CREATE of one that would be created; without names, others are hidden."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        all_topics = request.topics is None or (context.version == 0 and not request.topics)
        refused: list[MetadataResponseTopic] = []
        kept = []
        for topic in () if all_topics else request.topics:
            name = named_or_identified(topic, asker)
            if name is None or self._may_describe(name, request, asker):
                kept.append(topic)
            else:
                refused.append(
                    MetadataResponseTopic(
                        error_code=_REFUSED, name=topic.name, topic_id=topic.topic_id, partitions=[]
                    )
                )
        # In version 0 an empty list would mean all topics; every one of them is hidden then.
        hide_all = not all_topics and not kept
        request.topics = None if all_topics else kept

        def complete(response: Any) -> None:
            response.topics = (
                [] if hide_all else [each for each in response.topics if _is_visible(each, asker)]
            )
            response.topics.extend(refused)
            _cut_operations(response.topics, asker)
            cut_cluster_operations(response, asker)

        context.amend(complete)
        return None

    def _may_describe(self, name: str, request: Any, asker: Asker) -> bool:
        if not asker.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return False
        would_create = asker.topics.would_create(name, allowed=request.allow_auto_topic_creation)
        return not would_create or may_create(asker, name)


def _is_visible(topic: Any, asker: Asker) -> bool:
    return topic.name is None or asker.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)


def _cut_operations(topics: list[Any], asker: Asker) -> None:
    for topic in topics:
        if topic.topic_authorized_operations != NOT_REQUESTED and topic.name is not None:
            topic.topic_authorized_operations &= asker.operations(ResourceType.TOPIC, topic.name)


def cut_cluster_operations(response: Any, asker: Asker) -> None:
    """Leave what the principal may do with the cluster; nothing, if it may not even describe it."""
    if response.cluster_authorized_operations != NOT_REQUESTED:
        may_describe = asker.may(Operation.DESCRIBE, ResourceType.CLUSTER)
        response.cluster_authorized_operations &= (
            asker.operations(ResourceType.CLUSTER) if may_describe else 0
        )


class DescribedPartitions:
    """DESCRIBE of each topic; without names, of every topic there is, and others are hidden.

    A cursor on a hidden topic means the next topic, as it does where there is no such topic.
    """

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        all_topics = not request.topics
        names = [topic.name for topic in asker.topics if all_topics] + [each.name for each in request.topics]
        begin = "" if request.cursor is None else request.cursor.topic_name
        if request.cursor is not None and not all_topics and begin not in names:
            return None  # the handler says so
        names = [name for name in names if name >= begin]
        kept = dict.fromkeys(n for n in names if asker.may(Operation.DESCRIBE, ResourceType.TOPIC, n))
        refused = [
            DescribedTopic(error_code=_REFUSED, name=name, topic_id=ZERO_UUID, partitions=[])
            for name in names
            if not all_topics and name not in kept
        ]
        if not kept:
            return DescribeTopicPartitionsResponse(topics=refused, next_cursor=None)
        request.topics = [TopicRequest(name=name) for name in kept]
        if begin not in kept:
            request.cursor = None

        def complete(response: Any) -> None:
            response.topics = [each for each in response.topics if each.name in kept]
            response.topics.extend(refused)
            _cut_operations(response.topics, asker)

        context.amend(complete)
        return None


_CONFIG_TYPES: Final = {
    2: ResourceType.TOPIC,
    4: ResourceType.CLUSTER,
    8: ResourceType.CLUSTER,
    16: ResourceType.CLUSTER,
    32: ResourceType.GROUP,
}
"""What protects the settings of a resource, by the numbers that requests about settings use."""


class ConfiguredResources:
    """One operation of each topic, group, or of the cluster for everything else."""

    def __init__(self, operation: Operation, answers: str, answer: Any) -> None:
        self._operation = operation
        self._answers = answers
        self._answer = answer

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        kept, refused = [], []
        for resource in request.resources:
            resource_type = _CONFIG_TYPES.get(resource.resource_type)
            name = CLUSTER_NAME if resource_type == ResourceType.CLUSTER else resource.resource_name
            if resource_type is None or asker.may(self._operation, resource_type, name):
                kept.append(resource)
            else:
                refused.append(
                    self._answer(
                        error_code=REFUSED[resource_type],
                        error_message=None,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
        request.resources = kept
        add_answers(context, self._answers, refused)
        return None


def _described_configs(**fields: Any) -> DescribeConfigsResult:
    return DescribeConfigsResult(configs=[], **fields)


DESCRIBED_CONFIGS = ConfiguredResources(Operation.DESCRIBE_CONFIGS, "results", _described_configs)
ALTERED_CONFIGS = ConfiguredResources(Operation.ALTER_CONFIGS, "responses", AlterConfigsResourceResponse)
INCREMENTALLY_ALTERED_CONFIGS = ConfiguredResources(
    Operation.ALTER_CONFIGS, "responses", IncrementalAlterConfigsResourceResponse
)
