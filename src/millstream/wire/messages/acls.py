"""Who may do what, and how much: access control lists (KIP-140) and client quotas (KIP-546)."""

from __future__ import annotations

from millstream.wire.schema import (
    Api,
    Request,
    Response,
    Struct,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)

DESCRIBE_ACLS = Api(29, "DescribeAcls", 1, 3, flexible=2)
CREATE_ACLS = Api(30, "CreateAcls", 1, 3, flexible=2)
DELETE_ACLS = Api(31, "DeleteAcls", 1, 3, flexible=2)
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 0, 1, flexible=1)
ALTER_CLIENT_QUOTAS = Api(49, "AlterClientQuotas", 0, 1, flexible=1)


class DescribeAclsRequest(Request, api=DESCRIBE_ACLS):
    """Find the ACLs that match a filter."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="1+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="1+")
    host_filter: str | None = string(nullable="1+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response, api=DESCRIBE_ACLS):
    """The ACLs that were found, by resource."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="1+", default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, api=CREATE_ACLS):
    """Create ACLs."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="1+", default=None)


class CreateAclsResponse(Response, api=CREATE_ACLS):
    """The result of each creation, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="1+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="1+")
    host_filter: str | None = string(nullable="1+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Request, api=DELETE_ACLS):
    """Delete the ACLs that match any of the filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="1+", default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="1+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response, api=DELETE_ACLS):
    """The ACLs that each filter deleted."""

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


# -- quotas


class QuotaEntityPart(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class QuotaFilterComponent(Struct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Request, api=DESCRIBE_CLIENT_QUOTAS):
    """Find the quotas of the entities that match all components."""

    components: list[QuotaFilterComponent] = array(QuotaFilterComponent)
    strict: bool = boolean()


class QuotaValue(Struct):
    key: str = string()
    value: float = float64()


class DescribedQuota(Struct):
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    values: list[QuotaValue] = array(QuotaValue)


class DescribeClientQuotasResponse(Response, api=DESCRIBE_CLIENT_QUOTAS):
    """The quotas that were found, by entity."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entries: list[DescribedQuota] | None = array(DescribedQuota, nullable="0+")


class QuotaAlteration(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlteredQuotaEntity(Struct):
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)
    ops: list[QuotaAlteration] = array(QuotaAlteration)


class AlterClientQuotasRequest(Request, api=ALTER_CLIENT_QUOTAS):
    """Set and remove quotas of entities."""

    entries: list[AlteredQuotaEntity] = array(AlteredQuotaEntity)
    validate_only: bool = boolean()


class AlteredQuotaResult(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    entity: list[QuotaEntityPart] = array(QuotaEntityPart)


class AlterClientQuotasResponse(Response, api=ALTER_CLIENT_QUOTAS):
    """The result for each entity."""

    throttle_time_ms: int = int32(default=0)
    entries: list[AlteredQuotaResult] = array(AlteredQuotaResult)
