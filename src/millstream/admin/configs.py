"""The settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import overload

from millstream.admin.session import AdminSession, Outcome, error_of, names_of
from millstream.admin.values import ConfigEntry, config_text
from millstream.client.blocking import Deadline
from millstream.client.targets import AnyNode, Node, Target
from millstream.errors import MisuseError
from millstream.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

Settings = dict[str, ConfigEntry]


class _Resource(IntEnum):
    TOPIC = 2
    BROKER = 4


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


class ConfigAdmin(AdminSession):
    """The calls about settings."""

    @overload
    def topic_configs(  # type: ignore[overload-overlap]  # a str is one topic, not its letters
        self, topics: str, names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Settings: ...

    @overload
    def topic_configs(
        self, topics: Iterable[str], names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, Settings]: ...

    def topic_configs(
        self, topics: str | Iterable[str], names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Settings | dict[str, Settings]:
        """The settings of a topic by name, or only those named; of several topics, by topic."""
        found = self._describe_configs(_Resource.TOPIC, names_of(topics), names, self._deadline(timeout))
        return found[topics] if isinstance(topics, str) else found

    def broker_configs(
        self, broker_id: int, names: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Settings:
        """The settings of a broker by name."""
        name = str(broker_id)
        return self._describe_configs(_Resource.BROKER, [name], names, self._deadline(timeout))[name]

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
        """Change some settings of one or more topics; None brings a setting back to its default.

        ``append`` and ``subtract`` add to and take from settings that are lists. Settings that are not named
        stay.
        """
        entries = _entries(changes, append or {}, subtract or {})
        self._alter(_Resource.TOPIC, names_of(topics), entries, validate_only, self._deadline(timeout))

    def alter_broker_configs(
        self,
        broker_id: int,
        changes: Mapping[str, object],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change settings of a running broker; None brings one back to what its file says.

        The embedded broker refuses, with InvalidRequestError: its settings are given at its start.
        """
        entries = _entries(changes, {}, {})
        self._alter(_Resource.BROKER, [str(broker_id)], entries, validate_only, self._deadline(timeout))

    def _describe_configs(
        self, kind: _Resource, resources: list[str], names: Iterable[str] | None, deadline: Deadline
    ) -> dict[str, Settings]:
        keys = None if names is None else [names] if isinstance(names, str) else list(names)

        def ask(wanted: list[str]) -> Mapping[str, Outcome[Settings]]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                    for name in wanted
                ],
            )
            response = self._calls.call(
                _target(kind, wanted), DescribeConfigsResponse, lambda version: request, deadline
            )
            return {
                result.resource_name: error_of(
                    result.error_code, f"{kind.name.lower()} {result.resource_name}", result.error_message
                )
                if result.error_code
                else {entry.name: _entry(entry) for entry in result.configs}
                for result in response.results
            }

        return self._each(resources, deadline, ask)

    def _alter(
        self,
        kind: _Resource,
        resources: list[str],
        entries: list[IncrementalAlterableConfig],
        validate_only: bool,
        deadline: Deadline,
    ) -> None:
        def ask(wanted: list[str]) -> Mapping[str, Outcome[None]]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
                    for name in wanted
                ],
                validate_only=validate_only,
            )
            response = self._calls.call(
                _target(kind, wanted), IncrementalAlterConfigsResponse, lambda version: request, deadline
            )
            return {
                result.resource_name: error_of(
                    result.error_code, f"{kind.name.lower()} {result.resource_name}", result.error_message
                )
                if result.error_code
                else None
                for result in response.responses
            }

        self._each(resources, deadline, ask)


def _target(kind: _Resource, names: list[str]) -> Target:
    """Only a broker itself knows its settings; those of topics are known to all."""
    return Node(int(names[0])) if kind is _Resource.BROKER else AnyNode()


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
        raise MisuseError("there is no setting to change: give at least one")
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
