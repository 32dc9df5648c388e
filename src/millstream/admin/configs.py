"""Settings of topics and brokers: describe and alter them, and list what has any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

from millstream.admin.call import AdminCall, Outcome, outcome_of
from millstream.admin.values import ConfigEntry, ConfigResource, config_text
from millstream.client.targets import AnyNode, Node, Target
from millstream.errors import MisuseError, UnsupportedVersionError, raise_for_code
from millstream.suggestions import did_you_mean
from millstream.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

V = TypeVar("V")

ConfigEntries = dict[str, ConfigEntry]


class Resource(IntEnum):
    """What has settings, by its number in Kafka's protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "client_metrics",
    8: "group",
}


def describe_configs(
    call: AdminCall, kind: Resource, resources: list[str], names: Iterable[str] | None
) -> dict[str, ConfigEntries]:
    """The settings of topics or of one broker, by resource and name; all of them, or those in ``names``."""
    keys = None if names is None else [names] if isinstance(names, str) else list(names)

    def ask(wanted: list[str]) -> Mapping[str, Outcome[ConfigEntries]]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                for name in wanted
            ],
        )
        response = call.send(_target(kind, wanted), DescribeConfigsResponse, request)
        return {
            result.resource_name: _outcome(
                kind, result, {entry.name: _entry(entry) for entry in result.configs}
            )
            for result in response.results
        }

    return call.each(resources, ask)


def alter_configs(
    call: AdminCall,
    kind: Resource,
    resources: list[str],
    changes: Mapping[str, object],
    append: Mapping[str, object] | None = None,
    subtract: Mapping[str, object] | None = None,
    *,
    validate_only: bool,
) -> None:
    """Change settings of topics or of one broker; settings that are not named stay."""
    entries = _entries(changes, append or {}, subtract or {})

    def ask(wanted: list[str]) -> Mapping[str, Outcome[None]]:
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
                for name in wanted
            ],
            validate_only=validate_only,
        )
        response = call.send(_target(kind, wanted), IncrementalAlterConfigsResponse, request)
        return {result.resource_name: _outcome(kind, result, None) for result in response.responses}

    call.each(resources, ask)


def list_config_resources(call: AdminCall, types: str | Iterable[str] | None) -> list[ConfigResource]:
    """What has settings, sorted: of some types, or of all."""
    wanted = [_resource(name) for name in ([types] if isinstance(types, str) else types or ())]

    def build(version: int) -> ListConfigResourcesRequest:
        if version < 1:  # it would list client metrics only
            raise UnsupportedVersionError("ListConfigResources version 1 needs Kafka 4.1 or later")
        return ListConfigResourcesRequest(resource_types=[int(each) for each in wanted])

    def check(response: ListConfigResourcesResponse) -> None:
        raise_for_code(response.error_code, "listing what has settings")

    found = call.send(AnyNode(), ListConfigResourcesResponse, build, check).config_resources
    known = {int(each): each.name.lower() for each in Resource}
    return sorted(
        ConfigResource(known.get(each.resource_type, str(each.resource_type)), each.resource_name)
        for each in found
    )


def _resource(name: str) -> Resource:
    try:
        return Resource[name.upper()]
    except KeyError:
        known = [each.name.lower() for each in Resource]
        hint = did_you_mean(name, known) or f"choose from {', '.join(known)}"
        raise MisuseError(f"{name!r} is not a type of resource: {hint}") from None


def _outcome(kind: Resource, result: Any, value: V) -> Outcome[V]:
    what = f"{kind.name.lower()} {result.resource_name}"
    return outcome_of(value, result.error_code, what, result.error_message)


def _target(kind: Resource, names: list[str]) -> Target:
    """Only a broker itself knows its settings; every broker knows those of topics."""
    return Node(int(names[0])) if kind is Resource.BROKER else AnyNode()


def _entries(
    changes: Mapping[str, object], append: Mapping[str, object], subtract: Mapping[str, object]
) -> list[IncrementalAlterableConfig]:
    entries = [
        IncrementalAlterableConfig(
            name=name,
            config_operation=_Operation.DELETE if value is None else _Operation.SET,
            value=None if value is None else config_text(value),
        )
        for name, value in changes.items()
    ]
    for operation, more in ((_Operation.APPEND, append), (_Operation.SUBTRACT, subtract)):
        entries += [
            IncrementalAlterableConfig(name=name, config_operation=operation, value=config_text(value))
            for name, value in more.items()
        ]
    if not entries:
        raise MisuseError("no setting to change: give at least one")
    return entries


def _entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(entry.config_source, "unknown"),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation or None,
    )
