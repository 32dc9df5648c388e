"""Every message through real bytes, in versions drawn at random."""

from __future__ import annotations

import random
from typing import Final

from millstream.wire import apis, frames
from millstream.wire.schema import Request, Response

_LOWEST: Final = {
    apis.FIND_COORDINATOR: 0,
    apis.JOIN_GROUP: 5,
    apis.SYNC_GROUP: 3,
    apis.HEARTBEAT: 3,
    apis.LEAVE_GROUP: 0,
    apis.DESCRIBE_GROUPS: 0,
    apis.OFFSET_COMMIT: 7,
    apis.OFFSET_FETCH: 1,
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
