"""Asks the authorizer before each request, and keeps the ACLs in a file of the data directory.

The file is replaced as a whole, and a change is durable before it is in force.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Final

from millstream.broker.access.authorizer import Authorizer
from millstream.broker.access.rules import Asker
from millstream.broker.access.settings import AccessSettings
from millstream.broker.access.table import TABLE
from millstream.broker.log.documents import parse_document
from millstream.broker.log.files import Files
from millstream.broker.request_context import RequestContext
from millstream.broker.served_topics import ServedTopics
from millstream.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from millstream.wire.schema import Request, Response

log = logging.getLogger("millstream.broker")

_FORMAT: Final = 1


class AccessControl:
    """The ACLs of one broker, in force. ``open`` reads them."""

    def __init__(self, settings: AccessSettings, topics: ServedTopics, path: Path, files: Files) -> None:
        self._topics = topics
        self._path = path
        self._files = files
        self.on_changed: Callable[[], None] = lambda: None
        """Called when other ACLs are in force."""
        self._authorizer = Authorizer(
            (), settings.super_users, allow_if_no_acl=settings.allow_everyone_if_no_acl_found
        )

    def open(self) -> None:
        """Read the file, if there is one. Raises KafkaStorageError if it is damaged."""
        try:
            data = self._files.read(self._path)
        except FileNotFoundError:
            return
        self._files.make_private(self._path)
        acls = parse_document(
            self._path, data, _FORMAT, lambda found: [_parse(*row) for row in found["acls"]]
        )
        self._authorizer.replace(acls)

    def check(self, request: Request, context: RequestContext) -> Response | None:
        """Return the answer that refuses a request; None lets it pass, less what its sender may not use."""
        asker = Asker(self._authorizer, context.principal, context.remote_host, self._topics)
        for rule in TABLE[request.api]:
            refusal = rule.check(request, context, asker)
            if refusal is not None:
                log.info("refused %s of %s at %s", request.api.name, context.principal, context.remote_host)
                return refusal
        return None

    @property
    def acls(self) -> frozenset[Acl]:
        return self._authorizer.acls

    def change(self, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        """Add and remove ACLs, durably. On OSError nothing has changed."""
        acls = (self.acls | frozenset(added)) - frozenset(removed)
        if acls == self.acls:
            return
        document = {"version": _FORMAT, "acls": [astuple(acl) for acl in sorted(acls)]}
        self._files.write_atomically(self._path, json.dumps(document, indent=1).encode(), private=True)
        self._authorizer.replace(acls)
        self.on_changed()


def _parse(
    resource_type: int, name: str, principal: str, operation: int, permission: int, host: str, pattern: int
) -> Acl:
    if not all(isinstance(text, str) for text in (name, principal, host)):
        raise ValueError("an ACL has a name that is not text")
    return Acl(
        ResourceType(resource_type),
        name,
        principal,
        Operation(operation),
        Permission(permission),
        host,
        PatternType(pattern),
    )
