"""The broker's settings as tables for the documentation, from the definitions that the broker obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from millstream.broker.log.config import CONFIG_DEFINITIONS
from millstream.broker.settings import BrokerSettings
from millstream.settings import INT_MAX, LONG_MAX, dotted

MEANING: Final[Mapping[str, str]] = {
    "node_id": "The number that clients know the broker by.",
    "broker_rack": "Where the broker stands, as clients are told.",
    "advertised_listeners": "The address that clients are told to use; the one they reached the broker by "
    "unless it is set.",
    "num_partitions": "The partitions of a topic that is created without a number.",
    "auto_create_topics_enable": "Whether a topic that a client names is created when it is missing.",
    "delete_topic_enable": "Whether topics may be deleted.",
    "socket_request_max_bytes": "The largest request.",
    "max_connections": "How many clients may be connected, if the system has descriptors for so many.",
    "connections_max_idle_ms": "A connection that is silent for so long is closed.",
    "queued_max_request_bytes": "The memory for requests that are half received, of all clients together; "
    "the one that holds most is cut off when it is used up.",
    "fetch_max_bytes": "The most that one fetch returns, whatever the client asks for.",
    "max_incremental_fetch_session_cache_slots": "How many fetch sessions are remembered (KIP-227).",
    "log_retention_check_interval_ms": "How often old segments are looked for.",
    "log_cleaner_enable": "Whether compacted topics are compacted.",
    "log_cleaner_backoff_ms": "How often topics to compact are looked for.",
    "producer_id_expiration_ms": "How long the sequence of an idle idempotent producer is remembered.",
    "group_min_session_timeout_ms": "The shortest session.timeout.ms of a group's members. (Kafka: 6000.)",
    "group_max_session_timeout_ms": "The longest one.",
    "group_initial_rebalance_delay_ms": "How long a new group waits for more members. (Kafka: 3000.)",
    "group_max_size": "The most members of one group.",
    "offset_metadata_max_bytes": "The longest note that a commit may carry.",
    "offsets_retention_minutes": "How long the offsets of a group without members are kept.",
    "offsets_retention_check_interval_ms": "How often offsets to forget are looked for.",
    "offsets_topic_num_partitions": "The partitions of `__consumer_offsets`, when it is created.",
    "offsets_topic_segment_bytes": "The size of its files.",
}
"""What each of the broker's own settings does."""

_NO_LIMIT: Final = {str(INT_MAX), str(LONG_MAX)}


def broker_table() -> str:
    """The broker's own settings, as a Markdown table."""
    defaults = BrokerSettings().properties()
    rows = [(_code(dotted(name)), _default(defaults[dotted(name)]), why) for name, why in MEANING.items()]
    return _table([("setting", "default", ""), *rows])


def topic_table() -> str:
    """The settings of topics, as a Markdown table, with the broker's setting that gives the default."""
    rows = [
        (_code(each.name), _default(each.default), _code(each.broker_name or ""), each.documentation)
        for each in CONFIG_DEFINITIONS
    ]
    return _table([("topic's setting", "default", "broker's setting", ""), *rows])


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    titles, *others = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([titles, "|" + "-|" * len(rows[0]) + "\n", *others])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _default(value: str) -> str:
    return "no limit" if value in _NO_LIMIT else value or "none"
