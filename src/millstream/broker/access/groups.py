"""What requests about groups need: the group, and for offsets the topics as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.broker.access.rules import (
    NOT_REQUESTED,
    REFUSED,
    Asker,
    Each,
    Whole,
    named_or_identified,
)
from millstream.broker.groups.outcome import error_response
from millstream.broker.request_context import RequestContext
from millstream.errors import ErrorCode
from millstream.security.acls import Operation, ResourceType
from millstream.wire.messages.group_admin import DeletableGroupResult, DescribedGroup
from millstream.wire.messages.group_offsets import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.wire.messages.groups import Coordinator, FindCoordinatorResponse
from millstream.wire.schema import Response

_TRANSACTION = 1


def of_group(operation: Operation) -> Whole:
    """The one group of the request."""
    return Whole(operation, ResourceType.GROUP, error_response, lambda request: request.group_id)


COMMITTED_TOPICS = Each(
    Operation.READ,
    ResourceType.TOPIC,
    "topics",
    "topics",
    lambda topic, error: OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    ),
    named_or_identified,
)

DELETED_OFFSETS = Each(
    Operation.READ,
    ResourceType.TOPIC,
    "topics",
    "topics",
    lambda topic, error: OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    ),
)

DELETED_GROUPS = Each(
    Operation.DELETE,
    ResourceType.GROUP,
    "groups_names",
    "results",
    lambda group, error: DeletableGroupResult(group_id=group, error_code=error),
    lambda group, _: str(group),
)


class DescribedGroups:
    """DESCRIBE of each group; ``authorizedOperations`` is cut to what the principal may do."""

    _groups = Each(
        Operation.DESCRIBE,
        ResourceType.GROUP,
        "groups",
        "groups",
        lambda group, error: DescribedGroup(
            error_code=error, group_id=group, group_state="", protocol_type="", protocol_data="", members=[]
        ),
        lambda group, _: str(group),
    )

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        def cut(response: Any) -> None:
            for group in response.groups:
                if group.authorized_operations != NOT_REQUESTED:
                    group.authorized_operations &= asker.operations(ResourceType.GROUP, group.group_id)

        context.amend(cut)
        return self._groups.check(request, context, asker)


class ListedGroups:
    """Every group with DESCRIBE of the cluster; otherwise those that may be described."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if asker.may(Operation.DESCRIBE, ResourceType.CLUSTER):
            return None

        def hide(response: Any) -> None:
            response.groups = [
                group
                for group in response.groups
                if asker.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
            ]

        context.amend(hide)
        return None


class FoundCoordinators:
    """DESCRIBE of each group or transactional id."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        is_transaction = request.key_type == _TRANSACTION
        resource_type = ResourceType.TRANSACTIONAL_ID if is_transaction else ResourceType.GROUP
        if context.version < 4:
            if asker.may(Operation.DESCRIBE, resource_type, request.key):
                return None
            return FindCoordinatorResponse(error_code=REFUSED[resource_type], node_id=-1, host="", port=-1)
        each = Each(
            Operation.DESCRIBE,
            resource_type,
            "coordinator_keys",
            "coordinators",
            lambda key, error: Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error),
            lambda key, _: str(key),
        )
        return each.check(request, context, asker)


class FetchedOffsets:
    """DESCRIBE of each group and of its topics; if none are named, those without permission are hidden."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if context.version < 8:
            return self._of_one_group(request, context, asker)
        refused: list[OffsetFetchResponseGroup] = []
        kept = []
        for group in request.groups:
            if asker.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
                kept.append(group)
            else:
                error = ErrorCode.GROUP_AUTHORIZATION_FAILED
                refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error))
        request.groups = kept
        hidden = [_take_hidden(group, asker, _refused_topics) for group in kept]

        def complete(response: Any) -> None:
            for hide, group in zip(hidden, response.groups, strict=True):  # a group may be named twice
                group.topics = hide(group.topics)
            response.groups.extend(refused)

        context.amend(complete)
        return None

    def _of_one_group(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if not asker.may(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
            return error_response(request, context.version, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        hidden = _take_hidden(request, asker, _refused_topic)

        def complete(response: Any) -> None:
            response.topics = hidden(response.topics)

        context.amend(complete)
        return None


def _take_hidden(
    group: Any, asker: Asker, refused_topic: Callable[[Any], Any]
) -> Callable[[list[Any]], list[Any]]:
    """Take out the topics that may not be described; return what completes the answer of the others."""

    def may(topic: Any) -> bool:
        name = named_or_identified(topic, asker)
        return name is None or asker.may(Operation.DESCRIBE, ResourceType.TOPIC, name)

    if group.topics is None:
        return lambda topics: [topic for topic in topics if may(topic)]
    refused = [refused_topic(topic) for topic in group.topics if not may(topic)]
    group.topics = [topic for topic in group.topics if may(topic)]
    return lambda topics: [*topics, *refused]


def _refused_topics(topic: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in topic.partition_indexes
        ],
    )


def _refused_topic(topic: Any) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=-1,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in topic.partition_indexes
        ],
    )
