"""Handles DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

Broker settings are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

from millstream.broker.dispatch import handles
from millstream.broker.log.config import (
    TOPIC_SETTINGS,
    ConfigType,
    LogConfig,
    TopicSetting,
)
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import Topic
from millstream.broker.services import Services
from millstream.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidConfigError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from millstream.wire.messages.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)


class ResourceType(IntEnum):
    """What a setting belongs to, as numbered on the wire. The last three have none in this broker."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a setting's value comes from, as numbered on the wire."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What an incremental change does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_READ_ONLY: Final = (
    "the embedded broker's own settings are given at its start, with --set; restart it to change them"
)


@handles(DESCRIBE_CONFIGS)
def describe_configs(
    broker: Services, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe all or the requested settings of each resource."""
    once = {(each.resource_type, each.resource_name): each for each in request.resources}
    return DescribeConfigsResponse(results=[_describe(broker, each, request) for each in once.values()])


def _describe(
    broker: Services, wanted: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        if wanted.resource_type == ResourceType.TOPIC:
            found = _topic_entries(broker, _topic(broker, wanted.resource_name), request)
        elif wanted.resource_type == ResourceType.BROKER:
            found = _broker_entries(broker, wanted.resource_name)
        elif wanted.resource_type in tuple(ResourceType):
            found = []
        else:
            raise InvalidRequestError(f"{wanted.resource_type} is not a type of resource")
    except BrokerError as error:
        return _described(wanted, [], error.code, error.detail or str(error))
    keys = wanted.configuration_keys
    return _described(wanted, [entry for entry in found if keys is None or entry.name in keys])


def _described(
    wanted: DescribeConfigsResource,
    entries: list[DescribeConfigsResourceResult],
    code: int = ErrorCode.NONE,
    message: str | None = None,
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=entries,
    )


def _topic_entries(
    broker: Services, topic: Topic, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    return [_topic_entry(broker, topic, definition, request) for definition in TOPIC_SETTINGS.values()]


def _topic_entry(
    broker: Services, topic: Topic, definition: TopicSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    """Describe one setting, if requested with the values that it overrides."""
    present = _layers(broker, topic.configs, definition)
    _, value, source = present[0]
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=value,
        read_only=False,
        config_source=source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in present
        ]
        if request.include_synonyms
        else [],
        config_type=definition.type,
        documentation=definition.meaning if request.include_documentation else None,
    )


def topic_config_values(broker: Services, own: dict[str, str]) -> list[tuple[str, str, int]]:
    """Return name, value and source of every setting of a topic with these settings of its own."""
    firsts = ((each.name, *_layers(broker, own, each)[0][1:]) for each in TOPIC_SETTINGS.values())
    return [(name, value, int(source)) for name, value, source in firsts]


def _layers(
    broker: Services, own: Mapping[str, str], definition: TopicSetting
) -> list[tuple[str, str, ConfigSource]]:
    """Return the values of a topic setting, the effective one first, each with its name and source."""
    given = broker.settings.topic_properties.get(definition.name)
    layers = [
        (definition.name, own.get(definition.name), ConfigSource.TOPIC),
        (definition.broker_name or definition.name, given, ConfigSource.STATIC_BROKER),
        (definition.broker_name or definition.name, definition.default, ConfigSource.DEFAULT),
    ]
    return [(name, value, source) for name, value, source in layers if value is not None]


def _broker_entries(broker: Services, name: str) -> list[DescribeConfigsResourceResult]:
    if name not in ("", str(broker.node_id)):
        raise InvalidRequestError(f"there is no broker {name}: the only one is {broker.node_id}")
    if name == "":
        return []
    return [
        DescribeConfigsResourceResult(
            name=key,
            value=value,
            read_only=True,
            config_source=ConfigSource.STATIC_BROKER,
            is_sensitive=False,
            synonyms=[],
            config_type=ConfigType.STRING,
            documentation=None,
        )
        for key, value in broker.settings.properties().items()
    ]


def _topic(broker: Services, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name}")
    return topic


@handles(ALTER_CONFIGS)
def alter_configs(
    broker: Services, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Replace all settings of a topic by the given ones."""

    def altered(own: Mapping[str, str], resource: AlterConfigsResource) -> dict[str, str]:
        return {config.name: config.value for config in resource.configs if config.value is not None}

    changed = _alter(broker, request, altered)
    return AlterConfigsResponse(responses=[AlterConfigsResourceResponse(**each) for each in changed])


@handles(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(
    broker: Services, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change single settings of a topic (KIP-339)."""
    changed = _alter(broker, request, lambda own, resource: _merged(broker, own, resource.configs))
    responses = [IncrementalAlterConfigsResourceResponse(**each) for each in changed]
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    broker: Services,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    altered: Callable[[Mapping[str, str], Any], dict[str, str]],
) -> Iterator[dict[str, Any]]:
    """Change each resource to the settings that ``altered`` returns; yield the fields of its result."""
    for resource in request.resources:
        code, message = int(ErrorCode.NONE), None
        try:
            if resource.resource_type != ResourceType.TOPIC:
                raise InvalidRequestError(_READ_ONLY)
            topic = broker.topics.get(resource.resource_name)
            values = altered(topic.configs if topic is not None else {}, resource)
            LogConfig.from_properties(values, broker.settings.topic_defaults)  # checked first, as in Kafka
            if topic is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {resource.resource_name}")
            if not request.validate_only:
                broker.topics.set_configs(topic, values)
        except ConfigError as error:
            code, message = ErrorCode.INVALID_CONFIG, str(error)
        except BrokerError as error:
            code, message = error.code, error.detail or str(error)
        yield {
            "error_code": code,
            "error_message": message,
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }


def _merged(
    broker: Services, own: Mapping[str, str], changes: Iterable[IncrementalAlterableConfig]
) -> dict[str, str]:
    values = dict(own)
    seen = set()
    for change in changes:
        if change.name in seen:
            raise InvalidRequestError(f"{change.name} is changed more than once in the request")
        seen.add(change.name)
        if change.config_operation not in tuple(Operation):
            raise InvalidRequestError(f"{change.config_operation} is not an operation on a setting")
        if change.config_operation == Operation.DELETE:
            values.pop(change.name, None)
        elif change.value is None:
            raise InvalidRequestError(f"{change.name}: the value is missing")
        elif change.config_operation == Operation.SET:
            values[change.name] = change.value
        else:
            values[change.name] = _changed_list(broker, values, change)
    return values


def _changed_list(broker: Services, values: dict[str, str], change: IncrementalAlterableConfig) -> str:
    definition = TOPIC_SETTINGS.get(change.name)
    if definition is None or definition.type != ConfigType.LIST:
        raise InvalidConfigError(f"{change.name} is not a list: it can be set or deleted only")
    current = values.get(change.name, broker.settings.topic_defaults.property_of(change.name))
    words = [word for word in current.split(",") if word]
    given = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.config_operation == Operation.APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)


@handles(LIST_CONFIG_RESOURCES, note="groups and client metrics have no settings, so none is listed")
def list_config_resources(
    broker: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the names of what has settings (KIP-1142): of the given types, or of all."""
    types = request.resource_types or list(ResourceType) if context.version else [ResourceType.CLIENT_METRICS]
    if not set(types) <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    broker_name = [str(broker.node_id)]
    names = {
        ResourceType.TOPIC: [topic.name for topic in broker.topics],
        ResourceType.BROKER: broker_name,
        ResourceType.BROKER_LOGGER: broker_name,
    }
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ListedConfigResource(resource_name=name, resource_type=each)
            for each in dict.fromkeys(map(ResourceType, types))
            for name in names.get(each, [])
        ],
    )
