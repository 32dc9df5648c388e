"""Reading and changing the settings of topics and brokers."""

from __future__ import annotations

from millstream.wire.schema import Api, Request, Response, Struct, array, boolean, int8, int16, int32, string

DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 1, 4, flexible=4)
ALTER_CONFIGS = Api(33, "AlterConfigs", 0, 2, flexible=2)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, flexible=1, since="2.3")
LIST_CONFIG_RESOURCES = Api(74, "ListConfigResources", 0, 1, flexible=0, since="4.1")


class DescribeConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string(), nullable="0+")


class DescribeConfigsRequest(Request, api=DESCRIBE_CONFIGS):
    """Request the settings of topics, brokers or groups. Null keys mean all of them."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean("3+", default=False, ignorable=False)


class DescribeConfigsSynonym(Struct):
    """Another place that has a value for the setting: the first one listed wins."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One setting: its value, where that comes from, and whether it can be changed."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+", default=0)
    documentation: str | None = string("3+", nullable="0+", default=None)


class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, api=DESCRIBE_CONFIGS):
    """The settings of every requested resource."""

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, api=ALTER_CONFIGS):
    """Replace all settings of a resource: settings that are not named get their default."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, api=ALTER_CONFIGS):
    """Which resources were changed."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalAlterableConfig(Struct):
    """One change: ``config_operation`` is 0 to set, 1 to delete, 2 to append, 3 to subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


class IncrementalAlterConfigsRequest(Request, api=INCREMENTAL_ALTER_CONFIGS):
    """Change single settings of a resource, and leave the others as they are (KIP-339)."""

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResourceResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, api=INCREMENTAL_ALTER_CONFIGS):
    """Which resources were changed."""

    throttle_time_ms: int = int32(default=0)
    responses: list[IncrementalAlterConfigsResourceResponse] = array(IncrementalAlterConfigsResourceResponse)


class ListConfigResourcesRequest(Request, api=LIST_CONFIG_RESOURCES):
    """Request the names of what has settings (KIP-1142). No types means all; version 0, client metrics."""

    resource_types: list[int] = array(int8(), "1+", default=[], ignorable=False)


class ListedConfigResource(Struct):
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Response, api=LIST_CONFIG_RESOURCES):
    """The resources, each with its type."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ListedConfigResource] = array(ListedConfigResource)
