"""The kinds of rules in the table of permissions: what a request needs, and how it is refused.

A rule looks at a request before its handler does. It lets the request pass, refuses it as a whole, or takes
out the items that the principal may not use; those are added to the answer, refused, when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from millstream.broker.access.authorizer import Authorizer
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import ServedTopics
from millstream.errors import ErrorCode
from millstream.security.acls import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from millstream.wire.schema import Response

NOT_REQUESTED: Final = -(2**31)
"""``authorizedOperations`` of a request that did not ask for them."""

REFUSED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Who sent a request, and what they may do."""

    authorizer: Authorizer
    principal: str
    host: str
    topics: ServedTopics

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return self.authorizer.allows(self.principal, self.host, operation, resource_type, name)

    def may_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self.authorizer.allows_any(self.principal, self.host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return what they may do with a resource, one bit for each operation."""
        return sum(1 << each for each in OPERATIONS[resource_type] if self.may(each, resource_type, name))


class Rule(Protocol):
    """What one API needs."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        """Return the answer that refuses the request as a whole, or None."""


class Free:
    """Every client may send it."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        return None


@dataclass(frozen=True, slots=True)
class Whole:
    """One resource for the whole request: the cluster, or the one that ``name`` finds in the request."""

    operation: Operation
    resource_type: ResourceType
    refusal: Callable[[Any, int, int], Response]
    """``(request, version, error)`` to the answer."""
    name: Callable[[Any], str] = lambda _: CLUSTER_NAME

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        if asker.may(self.operation, self.resource_type, self.name(request)):
            return None
        return self.refusal(request, context.version, REFUSED[self.resource_type])


@dataclass(frozen=True, slots=True)
class Each:
    """One resource for each item of a list: items without permission are refused, one by one."""

    operation: Operation
    resource_type: ResourceType
    items: str
    """The request's list."""
    answers: str
    """The answer's list."""
    refused: Callable[[Any, int], Any]
    """``(item, error)`` to its answer."""
    name: Callable[[Any, Asker], str | None] = lambda item, _: item.name
    """The resource of an item; None leaves the item to the handler, which knows no such resource either."""

    def check(self, request: Any, context: RequestContext, asker: Asker) -> Response | None:
        items = getattr(request, self.items)
        kept: list[Any] = []
        refused: list[Any] = []
        for item in items or ():
            name = self.name(item, asker)
            allowed = name is None or asker.may(self.operation, self.resource_type, name)
            (kept if allowed else refused).append(item)
        if refused:
            setattr(request, self.items, kept)
            error = REFUSED[self.resource_type]
            add_answers(context, self.answers, [self.refused(item, error) for item in refused])
        return None


def add_answers(context: RequestContext, answers: str, refused: Iterable[Any]) -> None:
    """Add the answers of refused items to the handler's; one that is an error as a whole has no items."""

    def add(response: Any) -> None:
        if not getattr(response, "error_code", 0):
            getattr(response, answers).extend(refused)

    context.amend(add)


def named_or_identified(item: Any, asker: Asker) -> str | None:
    """Return the name of a topic that is given by name or by id; None if no topic has the id."""
    name: str | None = getattr(item, "name", None)
    topic_id: bytes | None = getattr(item, "topic_id", None)
    if name or topic_id is None:
        return name or ""
    topic = asker.topics.get_by_id(topic_id)
    return None if topic is None else topic.name
