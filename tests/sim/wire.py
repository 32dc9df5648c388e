"""Every message through real bytes, in versions drawn at random."""

from __future__ import annotations

import random
from typing import Final

from millstream.wire import frames
from millstream.wire.messages.group_admin import DESCRIBE_GROUPS
from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from millstream.wire.schema import Request, Response

_LOWEST: Final = {
    FIND_COORDINATOR: 0,
    JOIN_GROUP: 5,
    SYNC_GROUP: 3,
    HEARTBEAT: 3,
    LEAVE_GROUP: 0,
    DESCRIBE_GROUPS: 0,
    OFFSET_COMMIT: 7,
    OFFSET_FETCH: 1,
}
"""Older ones have no static members, and no defence against ghosts of first joins."""


def draw_versions(rng: random.Random) -> dict[int, int]:
    """The versions that a client and a broker, one of them older, agree on."""
    return {api.key: rng.randint(low, api.max_version) for api, low in _LOWEST.items()}


def through_request(request: Request, version: int) -> Request:
    chunks = frames.encode_request(request, version, 7, "sim")
    _, decoded = frames.decode_request(memoryview(b"".join(chunks))[4:])
    return decoded


def through_response(request_type: type[Request], response: Response, version: int) -> Response:
    chunks = frames.encode_response(response, version, 7)
    _, decoded = frames.decode_response(request_type, version, memoryview(b"".join(chunks))[4:])
    return decoded
