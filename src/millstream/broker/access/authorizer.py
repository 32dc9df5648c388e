"""Decides by ACLs who may do what, as Apache Kafka's StandardAuthorizer does. Pure.

- A super user may do everything.
- A rule that denies wins over all that allow.
- READ, WRITE, DELETE and ALTER allow DESCRIBE as well, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; what is
  denied implies nothing.
- Without any rule for a resource, ``allow_if_no_acl`` decides. With rules of which none matches: no.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_IMPLIED: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""The operations that allow another one."""
_MAX_REMEMBERED: Final = 50_000
_MAX_REMEMBERED_NAME: Final = 249
"""As long as a topic's name may be. Longer names are clients' inventions, and would fill the memory."""


class Authorizer:
    """The rules in force. ``replace`` exchanges them."""

    def __init__(
        self, acls: Iterable[Acl] = (), super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self.replace(acls)

    def replace(self, acls: Iterable[Acl]) -> None:
        """Apply these rules from now on, and no others."""
        self.acls: frozenset[Acl] = frozenset(acls)
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        self._prefix_lengths: dict[ResourceType, set[int]] = defaultdict(set)
        for acl in self.acls:
            if acl.pattern == PatternType.LITERAL:
                self._literal[acl.resource_type, acl.name].append(acl)
            else:
                self._prefixed[acl.resource_type, acl.name].append(acl)
                self._prefix_lengths[acl.resource_type].add(len(acl.name))
        self._remembered: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}

    def allows(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether ``principal`` at the IP address ``host`` may do ``operation`` with this resource."""
        key = (principal, host, operation, resource_type, name)
        known = self._remembered.get(key)
        if known is None:
            known = self._decide(*key)
            if len(name) <= _MAX_REMEMBERED_NAME:
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = known
        return known

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        has_acls = allowed = False
        for acl in self._acls_of(resource_type, name):
            has_acls = True
            if not _applies_to(acl, principal, host) or not _covers(acl, operation):
                continue
            if acl.permission == Permission.DENY:
                return False
            allowed = True
        return allowed if has_acls else self._allow_if_no_acl

    def _acls_of(self, resource_type: ResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((resource_type, name), ())
        if name != WILDCARD:
            yield from self._literal.get((resource_type, WILDCARD), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from self._prefixed.get((resource_type, name[:length]), ())

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be a resource of this type with which ``principal`` may do ``operation``."""
        if self.allows(principal, host, operation, resource_type, "hardcode"):  # Kafka asks with this name
            return True
        rules = [
            acl
            for acl in self.acls
            if acl.resource_type == resource_type
            and _applies_to(acl, principal, host)
            and acl.operation in (operation, Operation.ALL)
        ]
        denied = [acl for acl in rules if acl.permission == Permission.DENY]
        if any(map(_is_wildcard, denied)):
            return False
        return any(acl.permission == Permission.ALLOW and not _is_denied(acl, denied) for acl in rules)


def _applies_to(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, WILDCARD_PRINCIPAL) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission == Permission.ALLOW and acl.operation in _IMPLIED.get(operation, ())


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern == PatternType.LITERAL and acl.name == WILDCARD


def _is_denied(allowed: Acl, denied: Iterable[Acl]) -> bool:
    """Whether a rule that allows is overruled for all that it matches."""
    for acl in denied:
        if acl.pattern == PatternType.LITERAL:
            if allowed.pattern == PatternType.LITERAL and acl.name == allowed.name:
                return True
        elif allowed.name.startswith(acl.name) and not _is_wildcard(allowed):
            return True
    return False
