"""The coordinators of groups: looked up once for all callers, and kept until they prove wrong."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import MillstreamError, raise_for_code
from millstream.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from millstream.wire.schema import Request

GROUP = 0
"""The key type of a group id in FindCoordinator."""

Found = Callable[[int], None]
Failed = Callable[[MillstreamError], None]
Sender = Callable[
    [type[Request], Callable[[int], Request], Callable[[FindCoordinatorResponse], None], Failed], None
]


def build_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """The request in the form of this version: one key, or since version 4 a list of them."""
    if version >= 4:
        return FindCoordinatorRequest(key_type=GROUP, coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id, key_type=GROUP)


class Coordinators:
    """Node ids by group. Belongs to the I/O thread. Does not retry: that is up to the caller."""

    def __init__(self, send: Sender) -> None:
        self._send = send
        self._known: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Found, Failed]]] = {}

    def find(self, group_id: str, on_found: Found, on_failure: Failed) -> None:
        """Call ``on_found`` with the node id: at once if it is known, else when the answer comes."""
        node_id = self._known.get(group_id)
        if node_id is not None:
            on_found(node_id)
            return
        waiting = self._waiting.get(group_id)
        if waiting is not None:
            waiting.append((on_found, on_failure))
            return
        self._waiting[group_id] = [(on_found, on_failure)]
        self._send(
            FindCoordinatorRequest,
            lambda version: build_request(group_id, version),
            lambda response: self._answered(group_id, response),
            lambda error: self._failed(group_id, error),
        )

    def known(self, group_id: str) -> int | None:
        """The coordinator's node id if it was found. Any thread may call."""
        return self._known.get(group_id)

    def forget(self, group_id: str) -> None:
        """Look the coordinator up again next time: the broker was not it, or could not be reached."""
        self._known.pop(group_id, None)

    def _answered(self, group_id: str, response: FindCoordinatorResponse) -> None:
        found = response.coordinators[0] if response.coordinators else response
        try:
            raise_for_code(found.error_code, f"group {group_id}: {found.error_message or 'no coordinator'}")
        except MillstreamError as error:
            self._failed(group_id, error)
            return
        self._known[group_id] = found.node_id
        for on_found, _ in self._waiting.pop(group_id, ()):
            on_found(found.node_id)

    def _failed(self, group_id: str, error: MillstreamError) -> None:
        for _, on_failure in self._waiting.pop(group_id, ()):
            on_failure(error)
