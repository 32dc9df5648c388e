"""``millstream acl``: list, add and delete rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import open_admin
from millstream.cli.options import Commands, Common, repeated
from millstream.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.suggestions import did_you_mean
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_json, print_table

_OPERATIONS: Final = tuple(each.name.lower() for each in Operation if each > Operation.ANY)

Users = Annotated[
    list[str] | None, repeated("--user", metavar="USER", help="The user's name, or '*' for everyone")
]
Operations = Annotated[
    list[str] | None,
    repeated(
        "--operation",
        metavar="OPERATION",
        help="Such as read, write, describe, create, delete, alter or all",
        autocompletion=completion.words(*_OPERATIONS),
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="From this IP address only.")]
Deny = Annotated[bool, typer.Option("--deny", help="Forbid it, whatever else allows it.")]


def _names(option: str, metavar: str, what: str) -> Any:
    return repeated(option, metavar=metavar, help=f"{what}, or '*' for all")


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """What the rules are for."""

    topic: Annotated[
        tuple[str, ...], repeated("--topic", metavar="TOPIC", help="A topic, or '*' for all")
    ] = ()
    group: Annotated[
        tuple[str, ...], repeated("--group", metavar="GROUP", help="A group, or '*' for all")
    ] = ()
    transactional_id: Annotated[
        tuple[str, ...],
        repeated("--transactional-id", metavar="ID", help="A transactional id, or '*' for all"),
    ] = ()
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster.")] = False
    prefixed: Annotated[bool, typer.Option("--prefixed", help="Names are prefixes.")] = False

    def resources(self) -> list[tuple[ResourceType, str]]:
        return [
            *((ResourceType.TOPIC, name) for name in self.topic),
            *((ResourceType.GROUP, name) for name in self.group),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id),
            *([(ResourceType.CLUSTER, CLUSTER_NAME)] if self.cluster else []),
        ]

    @property
    def pattern(self) -> PatternType:
        return PatternType.PREFIXED if self.prefixed else PatternType.LITERAL


def acl() -> None:
    """List, add and delete the rules that say who may do what.

    [bold]Examples[/bold]

      millstream acl add --user ann --operation read --topic orders
      millstream acl list --topic orders
      millstream acl delete --user ann --topic orders
    """


def list_acls(common: Common, resource: ResourceOptions, user: Users = None) -> None:
    """List the rules; with names, those that apply to them.

    [bold]Examples[/bold]

      millstream acl list
      millstream acl list --topic orders --user ann
    """
    with open_admin(common.servers) as admin:
        found = {
            acl
            for wanted in _filters(resource, user, None, applying=True)
            for acl in admin.describe_acls(wanted)
        }
    _print(sorted(found), as_json=common.as_json)


def add(
    common: Common,
    resource: ResourceOptions,
    user: Users = None,
    operation: Operations = None,
    host: Host = "*",
    deny: Deny = False,
) -> None:
    """Allow users to do something, or forbid it.

    [bold]Examples[/bold]

      millstream acl add --user ann --operation read --topic orders
      millstream acl add --user etl --operation write --topic raw- --prefixed
      millstream acl add --user '*' --operation all --topic secret --deny
    """
    resources = resource.resources()
    if not user or not operation or not resources:
        raise UsageError("a rule needs --user, --operation, and what it is for, such as --topic")
    acls = [
        Acl(
            kind,
            name,
            _principal(each),
            _read_operation(word),
            Permission.DENY if deny else Permission.ALLOW,
            host,
            PatternType.LITERAL if kind is ResourceType.CLUSTER else resource.pattern,
        )
        for kind, name in resources
        for each in user
        for word in operation
    ]
    with open_admin(common.servers) as admin:
        admin.create_acls(acls)
    _print(sorted(acls), as_json=common.as_json)


def delete(
    common: Common, resource: ResourceOptions, user: Users = None, operation: Operations = None
) -> None:
    """Delete the rules with these users, operations and names, and print them.

    [bold]Examples[/bold]

      millstream acl delete --user ann
      millstream acl delete --topic raw- --prefixed
    """
    if not user and not operation and not resource.resources():
        raise UsageError("say which rules: --user, --operation, or what they are for, such as --topic")
    with open_admin(common.servers) as admin:
        gone = {acl for wanted in _filters(resource, user, operation) for acl in admin.delete_acls(wanted)}
    _print(sorted(gone), as_json=common.as_json)


def _filters(
    resource: ResourceOptions,
    users: list[str] | None,
    operations: list[str] | None,
    *,
    applying: bool = False,
) -> list[AclFilter]:
    """One filter for each combination. ``applying``: the rules that apply to a name, whatever they name."""
    pattern = PatternType.MATCH if applying and not resource.prefixed else resource.pattern
    named = [AclFilter(kind, name, pattern) for kind, name in resource.resources()] or [AclFilter()]
    principals: list[str | None] = [_principal(user) for user in users or ()]
    words = [_read_operation(word) for word in operations or ()]
    return [
        replace(each, principal=principal, operation=operation)
        for each in named
        for principal in principals or [None]
        for operation in words or [Operation.ANY]
    ]


def _principal(user: str) -> str:
    return user if ":" in user else f"User:{user}"


def _read_operation(word: str) -> Operation:
    name = word.strip().replace("-", "_").lower()
    if name not in _OPERATIONS:
        hint = did_you_mean(word, _OPERATIONS) or f"choose from {', '.join(_OPERATIONS)}"
        raise UsageError(f"{word!r} is not an operation: {hint}")
    return Operation[name.upper()]


def _print(acls: list[Acl], *, as_json: bool) -> None:
    rows = [
        (
            acl.principal,
            acl.permission.name.lower(),
            acl.operation.name.lower(),
            acl.resource_type.name.lower(),
            acl.name,
            acl.pattern.name.lower(),
            acl.host,
        )
        for acl in acls
    ]
    names = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(names, rows)


COMMANDS: Final[Commands] = {"list": list_acls, "add": add, "delete": delete}
