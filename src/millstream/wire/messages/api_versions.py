"""ApiVersions: the APIs and versions that a broker supports, the first request of every client."""

from __future__ import annotations

from millstream.wire.schema import Api, Request, Response, Struct, array, boolean, int16, int32, int64, string

API_VERSIONS = Api(18, "ApiVersions", 0, 4, flexible=3)


class ApiVersionsRequest(Request, api=API_VERSIONS):
    """Request the broker's versions, and name the client's software (KIP-511)."""

    client_software_name: str = string("3+", default="")
    client_software_version: str = string("3+", default="")


class ApiVersion(Struct):
    """The versions of one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """A feature of the cluster, and the levels of it that this broker can run (KIP-584)."""

    name: str = string("3+", default="")
    min_version: int = int16("3+", default=0)
    max_version: int = int16("3+", default=0)


class FinalizedFeatureKey(Struct):
    """A feature of the cluster, and the levels of it that are enabled."""

    name: str = string("3+", default="")
    max_version_level: int = int16("3+", default=0)
    min_version_level: int = int16("3+", default=0)


class ApiVersionsResponse(Response, api=API_VERSIONS):
    """The APIs and versions of the broker. Its header never has tagged fields, in any version."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0, default=[])
    finalized_features_epoch: int = int64("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, default=[])
    zk_migration_ready: bool = boolean("3+", tag=3, default=False)
