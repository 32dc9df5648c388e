"""Sequences in which time does something: sessions end, rebalances stop waiting, ids are forgotten; and what
chance would hardly ever come up with.
"""

from __future__ import annotations

from typing import Final

from tests.kafka.differential.values import Plain, Step

GROUP: Final = "~g"
SESSION_MS: Final = 1000
"""The shortest that both brokers allow."""


def _join(alias: str, version: int, *, member_id: str | None = None, **fields: Plain) -> Step:
    asked: dict[str, Plain] = {
        "group_id": GROUP,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 1500,
        "member_id": f"$member:{alias}" if member_id is None else member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": "topics:~t0"}],
        **fields,
    }
    return Step("JoinGroup", version, asked, alias, alias, "g")


def _sync(alias: str) -> Step:
    asked = {
        "group_id": GROUP,
        "generation_id": "$generation:g",
        "member_id": f"$member:{alias}",
        "assignments": "$everyone:g",
    }
    return Step("SyncGroup", 3, asked, alias)


def _heartbeat(alias: str, after: float = 0.0) -> Step:
    asked = {"group_id": GROUP, "generation_id": "$generation:g", "member_id": f"$member:{alias}"}
    return Step("Heartbeat", 3, asked, alias, after=after)


def _describe(after: float = 0.0) -> Step:
    return Step("DescribeGroups", 5, {"groups": [GROUP]}, after=after)


SESSION_ENDS: Final = [
    _join("a", 3, member_id=""),
    _sync("a"),
    _heartbeat("a"),
    _describe(),
    _describe(after=2.0),
    _heartbeat("a"),
    _join("a", 3),
]
PENDING_ID_IS_FORGOTTEN: Final = [
    _join("a", 5, member_id=""),
    _describe(),
    _describe(after=2.0),
    _join("a", 5),
]
REBALANCE_STOPS_WAITING: Final = [
    _join("a", 3, member_id="", session_timeout_ms=30_000),
    _sync("a"),
    _join("b", 3, member_id="", session_timeout_ms=30_000),
    _heartbeat("a"),
    _describe(),
    _heartbeat("a", after=2.5),
    _describe(),
    _sync("b"),
    _describe(),
]
WHO_DOES_NOT_SYNC_IS_DROPPED: Final = [
    _join("a", 3, member_id="", session_timeout_ms=30_000),
    _describe(),
    _describe(after=2.5),
    _heartbeat("a"),
]
STATIC_MEMBER_EXPIRES: Final = [
    _join("a", 7, member_id="", group_instance_id="i"),
    _sync("a"),
    _join("a", 7, member_id="", group_instance_id="i"),
    _describe(),
    _describe(after=2.0),
]


def _create() -> Step:
    topic: dict[str, Plain] = {"name": "~t0", "num_partitions": 1, "replication_factor": 1}
    topic |= {"assignments": [], "configs": []}
    return Step("CreateTopics", 5, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})


def _fetch(epoch: int, topic: str = "") -> Step:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    asked: dict[str, Plain] = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "session_id": "$session:s" if epoch else 0,
        "session_epoch": epoch,
        "topics": [{"topic_id": f"$topic:{topic}", "partitions": [partition]}] if topic else [],
    }
    return Step("Fetch", 13, asked, alias="s")


TOPIC_IS_MADE_ANEW: Final = [
    _create(),
    _fetch(0, "~t0"),
    Step("DeleteTopics", 1, {"topic_names": ["~t0"], "timeout_ms": 10_000}),
    _fetch(1),
    _create(),
    _fetch(2),
    _fetch(3, "~t0"),
]

TIMED: Final = {
    "a session ends": SESSION_ENDS,
    "a pending id is forgotten": PENDING_ID_IS_FORGOTTEN,
    "a rebalance stops waiting": REBALANCE_STOPS_WAITING,
    "who does not sync is dropped": WHO_DOES_NOT_SYNC_IS_DROPPED,
    "a static member expires": STATIC_MEMBER_EXPIRES,
    "a topic of a fetch session is made anew": TOPIC_IS_MADE_ANEW,
}
