"""Rules and users: create, describe and delete ACLs and SCRAM credentials."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from millstream.admin.call import AdminCall, Outcome, outcome_of
from millstream.client.targets import AnyNode
from millstream.errors import MisuseError, raise_for_code
from millstream.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from millstream.security.sasl.scram import MECHANISMS
from millstream.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from millstream.wire.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

_E = TypeVar("_E", bound=IntEnum)
SCRAM: Final = "SCRAM-SHA-512"
"""The mechanism of a user, unless another is given."""
_ITERATIONS: Final = 8192
_MECHANISM_NAMES: Final = {mechanism.type_id: name for name, mechanism in MECHANISMS.items()}


def create_acls(call: AdminCall, acls: Acl | Iterable[Acl]) -> None:
    """Create rules; one that exists already stays as it is."""

    def ask(wanted: list[Acl]) -> Mapping[Acl, Outcome[None]]:
        creations = [
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in wanted
        ]
        response = call.send(AnyNode(), CreateAclsResponse, CreateAclsRequest(creations=creations))
        return {
            acl: outcome_of(None, result.error_code, f"rule for {acl.name}", result.error_message)
            for acl, result in zip(wanted, response.results, strict=True)
        }

    call.each([acls] if isinstance(acls, Acl) else acls, ask)


def describe_acls(call: AdminCall, wanted: AclFilter) -> list[Acl]:
    """Return the rules that match, sorted."""

    def check(response: DescribeAclsResponse) -> None:
        raise_for_code(response.error_code, response.error_message or "describing ACLs")

    response = call.send(AnyNode(), DescribeAclsResponse, DescribeAclsRequest(**_fields(wanted)), check)
    return sorted(_acl(resource, acl) for resource in response.resources for acl in resource.acls)


def delete_acls(call: AdminCall, wanted: AclFilter) -> list[Acl]:
    """Delete the rules that match, and return them, sorted."""

    def check(response: DeleteAclsResponse) -> None:
        for result in response.filter_results:
            raise_for_code(result.error_code, result.error_message or "deleting ACLs")

    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(wanted))])
    (result,) = call.send(AnyNode(), DeleteAclsResponse, request, check).filter_results
    return sorted(_acl(acl, acl) for acl in result.matching_acls)


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(resource: Any, entry: Any) -> Acl:
    return Acl(
        _word(ResourceType, resource.resource_type),
        resource.resource_name,
        entry.principal,
        _word(Operation, entry.operation),
        _word(Permission, entry.permission_type),
        entry.host,
        _word(PatternType, resource.pattern_type),
    )


def _word(kind: type[_E], number: int) -> _E:
    """Return the word with this number; a newer broker may have others, which are UNKNOWN here."""
    return kind(number) if number in kind._value2member_map_ else kind(0)


def list_users(call: AdminCall) -> dict[str, dict[str, int]]:
    """Return the users with SCRAM credentials: the iterations of each by mechanism, by user."""
    request = DescribeUserScramCredentialsRequest(users=None)

    def check(response: DescribeUserScramCredentialsResponse) -> None:
        raise_for_code(response.error_code, response.error_message or "describing users")

    found = call.send(AnyNode(), DescribeUserScramCredentialsResponse, request, check).results
    return {
        result.user: {
            _MECHANISM_NAMES.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in result.credential_infos
        }
        for result in sorted(found, key=lambda result: result.user)
    }


def set_password(call: AdminCall, user: str, password: str | None, mechanism: str) -> None:
    """Store a user's password, salted here and never sent; None removes the user's credential."""
    found = MECHANISMS.get(mechanism.upper())
    if found is None:
        raise MisuseError(f"{mechanism!r} is not a SCRAM mechanism: use {' or '.join(MECHANISMS)}")
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[])
    if password is None:
        request.deletions.append(ScramCredentialDeletion(name=user, mechanism=found.type_id))
    elif not password:
        raise MisuseError("a password cannot be empty")
    else:
        salt = secrets.token_bytes(16)
        salted = found.salt_password(password, salt, _ITERATIONS)
        request.upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=found.type_id,
                iterations=_ITERATIONS,
                salt=salt,
                salted_password=salted,
            )
        )

    def ask(wanted: list[str]) -> Mapping[str, Outcome[None]]:
        response = call.send(AnyNode(), AlterUserScramCredentialsResponse, request)
        return {
            result.user: outcome_of(None, result.error_code, f"user {result.user}", result.error_message)
            for result in response.results
        }

    call.each([user], ask)
