"""The clients' settings as tables for the documentation, from the definitions that the clients obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from millstream.config import ClientConfig
from millstream.settings import INT_MAX, LONG_MAX

MEANING: Final[Mapping[str, str]] = {
    # all clients
    "bootstrap_servers": "Where to find the cluster: `host:port,host:port`, or a list; `[::1]:9092` for "
    "IPv6. One is enough, two survive the loss of one.",
    "client_dns_lookup": "All addresses of a name are tried in turn: only use_all_dns_ips.",
    "client_id": "The name that brokers log and show; set it to find this client in `group describe`.",
    "connections_max_idle_ms": "An idle connection is closed after this; -1 keeps it. Lower it behind "
    "firewalls that forget.",
    "metadata_max_age_ms": "How often topics, partitions and leaders are asked for anew. Lower it to find "
    "new topics of a pattern and new partitions sooner.",
    "receive_buffer_bytes": "The socket's receive buffer; -1 leaves it to the system. Raise it on fast, "
    "far networks.",
    "reconnect_backoff_max_ms": "The longest pause between attempts to connect; reconnect_backoff_ms, if "
    "that is longer.",
    "reconnect_backoff_ms": "The first pause before connecting again; it doubles each time.",
    "request_timeout_ms": "How long one request may take before it is given up and sent again.",
    "retry_backoff_max_ms": "The longest pause before a failed request is sent again; retry_backoff_ms, "
    "if that is longer.",
    "retry_backoff_ms": "The first pause before a failed request is sent again; it doubles each time.",
    "security_protocol": "Only PLAINTEXT so far.",
    "send_buffer_bytes": "The socket's send buffer; -1 leaves it to the system.",
    "socket_connection_setup_timeout_max_ms": "The longest that connecting may take, after it has doubled.",
    "socket_connection_setup_timeout_ms": "How long connecting may take at first; it doubles each time.",
    # consumer
    "allow_auto_create_topics": "Whether subscribing to a missing topic may create it, if the broker does "
    "that. Turn it off to see a typing error as one.",
    "auto_commit_interval_ms": "How often poll() commits by itself: the most that is read twice after a "
    "crash.",
    "auto_offset_reset": "Where to begin when nothing is committed, or it is gone: earliest, latest, none "
    "(an error), or `by_duration:PT1H`. Choose earliest when nothing may be missed.",
    "check_crcs": "Whether checksums of batches are verified. Leave it on.",
    "client_rack": "Where this client stands: it then reads from a replica there, if the cluster has one.",
    "default_api_timeout_ms": "How long calls without a timeout of their own may take.",
    "enable_auto_commit": "Whether poll() and close() commit by themselves; false without a group_id. "
    "Turn it off when a record counts as done only after your own work.",
    "exclude_internal_topics": "Whether a pattern leaves out topics such as `__consumer_offsets`.",
    "fetch_max_bytes": "The most that one answer to a fetch holds, of all partitions together.",
    "fetch_max_wait_ms": "How long the broker waits for fetch_min_bytes before it answers with less.",
    "fetch_min_bytes": "The broker answers when it has so much. Raise it for fewer, larger answers at the "
    "price of latency.",
    "group_id": "The group to share partitions with and to commit to; leave it out to read alone.",
    "group_instance_id": "Makes a static member: a restart within the session causes no rebalance. Unique "
    "in its group.",
    "group_protocol": "Only classic so far.",
    "heartbeat_interval_ms": "How often a member says that it lives: a third of session_timeout_ms or "
    "less; by itself when the session is 3000 or shorter.",
    "isolation_level": "read_committed leaves out records of open and aborted transactions.",
    "key_deserializer": "How keys become objects: a name from the list below, or a callable from bytes.",
    "max_partition_fetch_bytes": "The most of one partition in one answer; a larger record still comes. "
    "Raise it for large records or few partitions.",
    "max_poll_interval_ms": "A member that does not call poll() for so long is taken for stuck and loses "
    "its partitions. Raise it, or lower max_poll_records, when work on one batch takes long.",
    "max_poll_records": "The most records that one poll() returns.",
    "partition_assignment_strategy": "How the group shares partitions: names, Kafka's class names, "
    "classes or objects, best first. `cooperative-sticky` moves least.",
    "queued_max_bytes": "Ours: how much fetched data may wait for poll(). Bounds memory.",
    "session_timeout_ms": "A member that is silent for so long is taken for dead. Lower it to notice "
    "crashes sooner.",
    "value_deserializer": "How values become objects: a name from the list below, or a callable from bytes.",
    # producer
    "acks": "When a record counts as sent: all (on the disk of every in-sync replica), 1 (the leader has "
    "it), 0 (not asked).",
    "batch_size": "The most bytes of one batch of a partition. Raise it, with linger_ms, for throughput.",
    "buffer_memory": "How many bytes may wait to be sent; then send() waits.",
    "compression_gzip_level": "1 (fast) to 9 (small); -1 is gzip's own choice.",
    "compression_lz4_level": "1 (fast) to 17 (small).",
    "compression_type": "none, gzip, snappy, lz4 or zstd. lz4 is cheap, zstd small.",
    "compression_zstd_level": "-131072 (fast) to 22 (small).",
    "delivery_timeout_ms": "How long a record may take from send() until it is given up, retries "
    "included; at least linger_ms + request_timeout_ms.",
    "enable_idempotence": "Retries store a record once, and in order; false when acks is not all or "
    "retries is 0.",
    "key_serializer": "How keys become bytes: a name from the list below, or a callable to bytes.",
    "linger_ms": "How long a batch waits for more records. 0 for latency, 20 to 100 for throughput.",
    "max_block_ms": "How long send() waits for memory or metadata.",
    "max_in_flight_requests_per_connection": "Requests under way at once; at most 5 with enable_idempotence.",
    "max_request_size": "The largest record, and the largest request.",
    "metadata_max_idle_ms": "A topic that nothing was sent to for so long is no longer asked about.",
    "retries": "How often a request is sent again. Leave it: time bounds it better, delivery_timeout_ms of a "
    "producer and default_api_timeout_ms of an admin.",
    "value_serializer": "How values become bytes: a name from the list below, or a callable to bytes.",
}
"""What each setting does, and when to touch it."""

_DEFAULTS: Final = {
    "client_id": "a name of its own",
    "acks": "all",
    "partition_assignment_strategy": "range, cooperative-sticky",
}


def settings_table(config: type[ClientConfig]) -> str:
    """The settings that one client has beyond what all share (or the shared ones), as a Markdown table."""
    shared = {} if config is ClientConfig else {field.name: field.default for field in fields(ClientConfig)}
    own = [field for field in fields(config) if (field.name, field.default) not in shared.items()]
    rows = [f"| `{field.name}` | {_default(field)} | {MEANING[field.name]} |" for field in own]
    return "\n".join(["| setting | default | |", "|-|-|-|", *sorted(rows)]) + "\n"


def _default(field: Field[Any]) -> str:
    if field.name in _DEFAULTS:
        return _DEFAULTS[field.name]
    if field.default is MISSING:
        return "required"
    if field.default is None:
        return "none given"
    if field.default in (INT_MAX, LONG_MAX):
        return "no limit"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default) or '""'
