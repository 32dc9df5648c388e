"""Handles the requests about ACLs, and DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Any, TypeVar

from millstream.broker.access.control import AccessControl
from millstream.broker.dispatch import handles
from millstream.broker.quotas.table import (
    ADDRESS,
    CLIENT_ID,
    USER,
    EntityFilter,
    QuotaEntity,
    problem_with,
    problem_with_entity,
    problem_with_quotas,
)
from millstream.broker.request_context import RequestContext
from millstream.broker.services import Services
from millstream.errors import BrokerError, ErrorCode, InvalidRequestError, for_code
from millstream.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.wire.messages.acls import (
    ALTER_CLIENT_QUOTAS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    AclCreation,
    AclCreationResult,
    AclDescription,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntity,
    AlteredQuotaResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    QuotaEntityPart,
    QuotaValue,
)

_E = TypeVar("_E", bound=IntEnum)
_DISABLED = "this broker has no ACLs: start it with --set authorizer.class.name=…StandardAuthorizer"


def _control(broker: Services) -> AccessControl:
    if broker.access is None:
        raise for_code(ErrorCode.SECURITY_DISABLED)(_DISABLED)
    return broker.access


def _word(kind: type[_E], number: int) -> _E:
    """Return the word with this number, or UNKNOWN, which is 0."""
    return kind(number) if number in kind._value2member_map_ else kind(0)


def _filter(wanted: Any) -> AclFilter:
    found = AclFilter(
        _word(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _word(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _word(Operation, wanted.operation),
        _word(Permission, wanted.permission_type),
    )
    if found.is_unknown:
        raise InvalidRequestError("the filter has a type, an operation or a permission that is not known")
    return found


@handles(DESCRIBE_ACLS)
def describe_acls(
    broker: Services, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    """List the ACLs that match, by resource."""
    try:
        control, wanted = _control(broker), _filter(request)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.detail, resources=[])
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for acl in sorted(filter(wanted.matches, control.acls)):
        key = (int(acl.resource_type), acl.name, int(acl.pattern))
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=key[0], resource_name=key[1], pattern_type=key[2], acls=[]
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, resources=list(resources.values()))


@handles(CREATE_ACLS)
def create_acls(broker: Services, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Create the valid ones, all at once; those that exist already are left as they are."""
    added, results = [], []
    for creation in request.creations:
        try:
            _control(broker)
            added.append(_new_acl(creation))
        except BrokerError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=error.detail))
        else:
            results.append(AclCreationResult(error_code=ErrorCode.NONE))
    if added:
        try:
            _control(broker).change(added=added)
        except OSError as error:
            message = f"the ACLs could not be stored: {error.strerror}"
            return CreateAclsResponse(
                results=[
                    AclCreationResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=message)
                    for _ in results
                ]
            )
    return CreateAclsResponse(results=results)


def _new_acl(creation: AclCreation) -> Acl:
    acl = Acl(
        _word(ResourceType, creation.resource_type),
        creation.resource_name,
        creation.principal,
        _word(Operation, creation.operation),
        _word(Permission, creation.permission_type),
        creation.host,
        _word(PatternType, creation.resource_pattern_type),
    )
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequestError(f"an ACL cannot be for resources of type {acl.resource_type.name}")
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequestError(f"an ACL cannot have the pattern type {acl.pattern.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise InvalidRequestError(f"an ACL cannot have the operation {acl.operation.name}")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequestError(f"an ACL cannot have the permission {acl.permission.name}")
    if not acl.name:
        raise InvalidRequestError("an ACL must name a resource")
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequestError(f"the only resource of type CLUSTER is {CLUSTER_NAME}")
    if ":" not in acl.principal:
        raise InvalidRequestError(f"{acl.principal!r} is not a principal: write User:{acl.principal}")
    return acl


@handles(DELETE_ACLS)
def delete_acls(broker: Services, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Delete what any of the filters matches, all at once."""
    removed: set[Acl] = set()
    results = []
    for each in request.filters:
        try:
            found = sorted(filter(_filter(each).matches, _control(broker).acls))
        except BrokerError as error:
            results.append(
                DeleteAclsFilterResult(error_code=error.code, error_message=error.detail, matching_acls=[])
            )
            continue
        removed.update(found)
        results.append(
            DeleteAclsFilterResult(error_code=ErrorCode.NONE, matching_acls=[_deleted(acl) for acl in found])
        )
    if removed:
        try:
            _control(broker).change(removed=removed)
        except OSError as error:
            message = f"the ACLs could not be stored: {error.strerror}"
            for result in results:
                result.error_code, result.error_message = ErrorCode.KAFKA_STORAGE_ERROR, message
                result.matching_acls = []
    return DeleteAclsResponse(filter_results=results)


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


# -- quotas


_EXACT, _DEFAULT, _ANY = 0, 1, 2
"""How a component of a filter matches."""


@handles(DESCRIBE_CLIENT_QUOTAS)
def describe_client_quotas(
    broker: Services, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """List the quotas of the entities that match."""
    try:
        wanted = _entity_filter(request)
    except BrokerError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.detail, entries=None)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        entries=[
            DescribedQuota(
                entity=_parts(entity),
                values=[QuotaValue(key=key, value=value) for key, value in sorted(values.items())],
            )
            for entity, values in broker.quotas.quotas.items()
            if wanted.matches(entity)
        ],
    )


def _entity_filter(request: DescribeClientQuotasRequest) -> EntityFilter:
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if kind in exact or kind in any_name:
            raise InvalidRequestError(f"the filter names {kind} twice")
        if kind not in (USER, CLIENT_ID, ADDRESS):
            raise for_code(ErrorCode.UNSUPPORTED_VERSION)(f"entities of type {kind!r} are not supported")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise InvalidRequestError(f"{component.match_type} is not a way to match an entity")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise InvalidRequestError("only an exact match has a name, and it must have one")
        if component.match_type == _ANY:
            any_name.add(kind)
        else:
            exact[kind] = component.match
    return EntityFilter(exact, frozenset(any_name), request.strict)


@handles(ALTER_CLIENT_QUOTAS)
def alter_client_quotas(
    broker: Services, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Set and remove quotas; an entity with one invalid change keeps all as they were."""
    times = Counter(_entity(entry) for entry in request.entries)
    changes: dict[QuotaEntity, dict[str, float | None]] = {}
    problems: dict[QuotaEntity, BrokerError] = {}
    for entry in request.entries:
        entity = _entity(entry)
        problem = _quota_problem(entry) or (times[entity] > 1 and "the request names this entity twice") or ""
        if problem:
            problems[entity] = InvalidRequestError(problem)
        else:
            changes[entity] = {op.key: None if op.remove else op.value for op in entry.ops}
    failure: BrokerError | None = None
    if changes and not request.validate_only:
        try:
            broker.quotas.change(changes)
        except OSError as error:
            text = f"the quotas could not be stored: {error.strerror}"
            failure = for_code(ErrorCode.KAFKA_STORAGE_ERROR)(text)
    return AlterClientQuotasResponse(
        entries=[_altered(entry, problems.get(_entity(entry), failure)) for entry in request.entries]
    )


def _quota_problem(entry: AlteredQuotaEntity) -> str:
    names = [(part.entity_type, part.entity_name) for part in entry.entity]
    keys = [op.key for op in entry.ops]
    problem = problem_with_entity(names)
    if not problem and len(set(keys)) < len(keys):
        problem = "the request changes a quota twice"
    for op in entry.ops:
        problem = problem or problem_with(op.key, 1 if op.remove else op.value)
    return problem or problem_with_quotas(names, keys)


def _entity(entry: AlteredQuotaEntity) -> QuotaEntity:
    return QuotaEntity(
        tuple(sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=_order))
    )


def _order(name: tuple[str, str | None]) -> tuple[bool, str, str]:
    """Users first, as QuotaEntity has them."""
    return name[0] != USER, name[0], name[1] or ""


def _altered(entry: AlteredQuotaEntity, error: BrokerError | None) -> AlteredQuotaResult:
    return AlteredQuotaResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.detail,
        entity=entry.entity,
    )


def _parts(entity: QuotaEntity) -> list[QuotaEntityPart]:
    return [QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity]
