"""Every message through real bytes, in versions drawn at random."""

from __future__ import annotations

import random
from typing import Final

from millstream.wire import apis, frames
from millstream.wire.schema import Request, Response

_LOWEST: Final = {
    apis.FIND_COORDINATOR: 0,
    apis.JOIN_GROUP: 2,
    apis.SYNC_GROUP: 0,
    apis.HEARTBEAT: 0,
    apis.LEAVE_GROUP: 0,
    apis.DESCRIBE_GROUPS: 0,
    apis.OFFSET_COMMIT: 2,
    apis.OFFSET_FETCH: 1,
}
"""JoinGroup 0 has no rebalance timeout, and before 4 there is no defence against ghosts of first joins."""

_LOWEST_FOR_STATIC: Final = {
    apis.JOIN_GROUP: 5,
    apis.SYNC_GROUP: 3,
    apis.HEARTBEAT: 3,
    apis.LEAVE_GROUP: 3,
    apis.OFFSET_COMMIT: 7,
}


def draw_versions(rng: random.Random, *, static: bool) -> dict[int, int]:
    """The versions that a client and a broker, one of them older, agree on."""
    lowest = _LOWEST | _LOWEST_FOR_STATIC if static else _LOWEST
    return {api.key: rng.randint(low, api.max_version) for api, low in lowest.items()}


def through_request(request: Request, version: int) -> Request:
    chunks = frames.encode_request(request, version, 7, "sim")
    _, decoded = frames.decode_request(memoryview(b"".join(chunks))[4:])
    return decoded


def through_response(request_type: type[Request], response: Response, version: int) -> Response:
    chunks = frames.encode_response(response, version, 7)
    _, decoded = frames.decode_response(request_type, version, memoryview(b"".join(chunks))[4:])
    return decoded
