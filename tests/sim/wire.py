"""The versions of the protocol that brokers speak, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.group_admin import DESCRIBE_GROUPS
from millstream.wire.messages.group_offsets import OFFSET_COMMIT, OFFSET_FETCH
from millstream.wire.messages.groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from millstream.wire.messages.metadata import METADATA
from millstream.wire.messages.offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH

_LOWEST: Final = {
    FIND_COORDINATOR: 0,
    JOIN_GROUP: 5,
    SYNC_GROUP: 3,
    HEARTBEAT: 3,
    LEAVE_GROUP: 0,
    DESCRIBE_GROUPS: 0,
    OFFSET_COMMIT: 7,
    OFFSET_FETCH: 1,
    FETCH: 4,
    METADATA: 4,
    LIST_OFFSETS: LIST_OFFSETS.max_version,
    OFFSET_FOR_LEADER_EPOCH: OFFSET_FOR_LEADER_EPOCH.max_version,
    API_VERSIONS: API_VERSIONS.max_version,
}
"""Older ones of a group have no static members, and no defence against ghosts of first joins."""


def draw_versions(rng: random.Random, *, has_statics: bool) -> dict[int, int]:
    """The newest versions of a broker that is older than this client.

    A static leader that is back is not told that it leads before KIP-814: no one notices new partitions.
    """
    drawn = {api.key: rng.randint(low, api.max_version) for api, low in _LOWEST.items()}
    return drawn | {JOIN_GROUP.key: JOIN_GROUP.max_version} if has_statics else drawn


def ranges(newest: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The versions of each API; those that ``newest`` does not limit are the client's own."""
    return {api.key: (api.min_version, newest.get(api.key, api.max_version)) for api in _LOWEST}
