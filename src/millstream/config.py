"""The settings of consumer, producer and admin: Kafka's names (in snake_case), defaults and units.

A setting of Kafka's that millstream knows but does not support is refused with the reason, rather than
ignored. Where a default depends on what else was given, ``derive`` says so; what may not go together is
checked in ``__post_init__``, so that no instance can hold a contradiction.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from millstream.errors import ConfigError
from millstream.settings import (
    INT_MAX,
    LONG_MAX,
    Address,
    Addresses,
    Choice,
    Flag,
    Int,
    Integer,
    Long,
    Names,
    PositiveInt,
    Settings,
    Text,
    parse_address,
    read_text,
)

__all__ = [
    "Address",
    "AdminConfig",
    "ClientConfig",
    "ConsumerConfig",
    "ProducerConfig",
    "Serde",
    "parse_address",
]

Serde = str | Callable[..., object]
"""A serializer or deserializer: a name that ``serde`` knows, or any callable."""

BufferBytes = Annotated[int, Integer(-1, INT_MAX)]
"""The size of a socket's buffer; -1 leaves it to the operating system."""


def _read_security_protocol(value: object) -> str:
    protocol = read_text(value).upper()
    if protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise ConfigError(f"{protocol} is not supported yet: only PLAINTEXT is")
    if protocol != "PLAINTEXT":
        raise ValueError("must be PLAINTEXT")
    return protocol


_NO_TLS = "TLS and SASL are not there yet, only plain connections are"
_NOT_YET = "it is not there yet"

_REFUSED: dict[str, str] = {
    "ssl_*": _NO_TLS,
    "sasl_*": _NO_TLS,
    "security_providers": _NO_TLS,
    "metric_reporters": "read metrics() instead",
    "interceptor_classes": "wrap the calls in your own code, or use a callable as the (de)serializer",
    "metadata_recovery_*": _NOT_YET,
}


@dataclass(frozen=True, kw_only=True)
class ClientConfig(Settings):
    """What consumer, producer and admin have in common."""

    bootstrap_servers: Addresses
    client_id: Text = ""
    client_dns_lookup: Annotated[str, Choice(("use_all_dns_ips",))] = "use_all_dns_ips"
    connections_max_idle_ms: Annotated[int, Integer(-1, LONG_MAX)] = 540_000
    metadata_max_age_ms: Long = 300_000
    receive_buffer_bytes: BufferBytes = 65_536
    reconnect_backoff_max_ms: Long = 1_000
    reconnect_backoff_ms: Long = 50
    request_timeout_ms: Int = 30_000
    retry_backoff_max_ms: Long = 1_000
    retry_backoff_ms: Long = 100
    security_protocol: Annotated[str, _read_security_protocol] = "PLAINTEXT"
    send_buffer_bytes: BufferBytes = 131_072
    socket_connection_setup_timeout_max_ms: Long = 30_000
    socket_connection_setup_timeout_ms: Long = 10_000

    REFUSED: ClassVar = _REFUSED
    WITHOUT_EFFECT: ClassVar = frozenset(
        {"enable_metrics_push", "metrics_num_samples", "metrics_recording_level", "metrics_sample_window_ms"}
    )

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Let a back-off that is longer than its default maximum be its own maximum."""
        for name in ("reconnect_backoff", "retry_backoff", "socket_connection_setup_timeout"):
            given = values.get(f"{name}_ms", 0)
            if given > getattr(cls, f"{name}_max_ms"):
                values.setdefault(f"{name}_max_ms", given)
        return values

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        """Tell a setting of another client from one that nobody has."""
        for other in (ConsumerConfig, ProducerConfig, AdminConfig):
            if name in other.names():
                client = other.__name__.removesuffix("Config").lower()
                return f"{spelling} is a setting of the {client}, not of this client: leave it out"
        return super().unknown(name, spelling)


_CONSUMERS = itertools.count(1)
_PRODUCERS = itertools.count(1)
_ADMINS = itertools.count(1)

_LEGAL_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)


def _duration_ms(text: str) -> int | None:
    """Read an ISO 8601 duration of days and smaller units, such as P1DT2H or PT0.5S; None when it is none."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()) or text[-1] in "Tt":
        return None
    parts = {unit: float(amount or 0) for unit, amount in match.groupdict().items()}
    hours = parts["days"] * 24 + parts["hours"]
    return round(((hours * 60 + parts["minutes"]) * 60 + parts["seconds"]) * 1000)


def _read_offset_reset(value: object) -> str:
    strategy = read_text(value)
    if strategy in ("earliest", "latest", "none"):
        return strategy
    if strategy.startswith("by_duration:") and _duration_ms(strategy.partition(":")[2]) is not None:
        return strategy
    raise ValueError(
        "must be earliest, latest, none, or by_duration: with a duration such as by_duration:PT1H"
    )


def _read_group_id(value: object) -> str:
    group_id = read_text(value)
    if not group_id:
        raise ValueError("must not be empty: leave it out to read without a group")
    return group_id


def _read_instance_id(value: object) -> str:
    instance_id = read_text(value)
    if not _LEGAL_ID.fullmatch(instance_id) or instance_id in (".", ".."):
        raise ValueError("must have 1 to 249 letters, digits, dots, underscores or hyphens")
    return instance_id


def _read_group_protocol(value: object) -> str:
    protocol = read_text(value).lower()
    if protocol == "consumer":
        raise ConfigError(f"the new group protocol is not supported, use classic: {_NOT_YET}")
    return Choice(("classic",))(protocol)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of a consumer."""

    allow_auto_create_topics: Flag = True
    auto_commit_interval_ms: Int = 5_000
    auto_offset_reset: Annotated[str, _read_offset_reset] = "latest"
    check_crcs: Flag = True
    client_rack: Text = ""
    default_api_timeout_ms: Int = 60_000
    enable_auto_commit: Flag = True
    exclude_internal_topics: Flag = True
    fetch_max_bytes: Int = 52_428_800
    fetch_max_wait_ms: Int = 500
    fetch_min_bytes: Int = 1
    group_id: Annotated[str, _read_group_id] | None = None
    group_instance_id: Annotated[str, _read_instance_id] | None = None
    group_protocol: Annotated[str, _read_group_protocol] = "classic"
    heartbeat_interval_ms: PositiveInt = 3_000
    isolation_level: Annotated[str, Choice(("read_uncommitted", "read_committed"))] = "read_uncommitted"
    key_deserializer: Serde = "bytes"
    max_partition_fetch_bytes: Int = 1_048_576
    max_poll_interval_ms: PositiveInt = 300_000
    max_poll_records: PositiveInt = 500
    partition_assignment_strategy: Names = ("range", "cooperative-sticky")
    queued_max_bytes: PositiveInt = 67_108_864
    session_timeout_ms: PositiveInt = 45_000
    value_deserializer: Serde = "bytes"

    REFUSED: ClassVar = _REFUSED | {
        "group_remote_assignor": "it belongs to the new group protocol, which is not there yet",
        "share_acknowledgement_mode": "share groups are not there yet",
    }

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def auto_offset_reset_duration_ms(self) -> int | None:
        """How far back by_duration goes; None for the other ways to reset."""
        return _duration_ms(self.auto_offset_reset.partition(":")[2])

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Commit by itself only in a group; beat at a third of a short session; have a name of one's own."""
        values = super().derive(values)
        if "group_id" not in values:
            values.setdefault("enable_auto_commit", False)
        session_ms = values.get("session_timeout_ms", cls.session_timeout_ms)
        if session_ms <= cls.heartbeat_interval_ms:
            values.setdefault("heartbeat_interval_ms", max(1, session_ms // 3))
        if not values.get("client_id"):
            own = values.get("group_instance_id") or next(_CONSUMERS)
            values["client_id"] = "-".join(["consumer", *filter(None, [values.get("group_id")]), str(own)])
        return values

    def __post_init__(self) -> None:
        if not self.partition_assignment_strategy:
            raise ConfigError("partition_assignment_strategy is empty: name at least one assignor")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than session_timeout_ms "
                f"({self.session_timeout_ms}), and a third of it at best"
            )
        if self.group_id is None and self.group_instance_id is not None:
            raise ConfigError("group_instance_id needs a group_id")
        if self.group_id is None and self.enable_auto_commit:
            raise ConfigError("enable_auto_commit needs a group_id to commit to")


_TRANSACTIONS = "transactions are not there yet"
_PARTITIONER = "keys decide as in Kafka's own producer; give partition= to send() to choose another partition"


def _read_acks(value: object) -> int:
    """Read how many acknowledgements a batch needs: -1 stands for all."""
    word = value.strip() if isinstance(value, str) else value
    if word in ("all", "-1", -1):
        return -1
    if word in ("0", "1", 0, 1) and not isinstance(word, bool):
        return int(str(word))
    raise ValueError("must be all, 1 or 0")


def _read_gzip_level(value: object) -> int:
    level = Integer(-1, 9)(value)
    if level == 0:
        raise ValueError("must be 1 to 9, or -1 for the default")
    return level


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of a producer. ``acks`` is -1 for all."""

    acks: Annotated[int, _read_acks] = -1
    batch_size: Int = 16_384
    buffer_memory: Long = 33_554_432
    compression_gzip_level: Annotated[int, _read_gzip_level] = -1
    compression_lz4_level: Annotated[int, Integer(1, 17)] = 9
    compression_type: Annotated[str, Choice(("none", "gzip", "snappy", "lz4", "zstd"))] = "none"
    compression_zstd_level: Annotated[int, Integer(-131_072, 22)] = 3
    delivery_timeout_ms: Int = 120_000
    enable_idempotence: Flag = True
    key_serializer: Serde = "bytes"
    linger_ms: Long = 5
    max_block_ms: Long = 60_000
    max_in_flight_requests_per_connection: PositiveInt = 5
    max_request_size: Int = 1_048_576
    metadata_max_idle_ms: Annotated[int, Integer(5_000, LONG_MAX)] = 300_000
    receive_buffer_bytes: BufferBytes = 32_768
    retries: Int = INT_MAX
    value_serializer: Serde = "bytes"

    REFUSED: ClassVar = _REFUSED | {
        "transactional_id": _TRANSACTIONS,
        "transaction_*": _TRANSACTIONS,
        "partitioner_*": _PARTITIONER,
    }

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Drop idempotence when acks or retries rule it out; deliver no faster than one request may take."""
        values = super().derive(values)
        if values.get("acks", -1) != -1 or values.get("retries") == 0:
            values.setdefault("enable_idempotence", False)
        one_request_ms = values.get("linger_ms", cls.linger_ms) + values.get(
            "request_timeout_ms", cls.request_timeout_ms
        )
        if one_request_ms > cls.delivery_timeout_ms:
            values.setdefault("delivery_timeout_ms", min(one_request_ms, INT_MAX))
        if not values.get("client_id"):
            values["client_id"] = f"producer-{next(_PRODUCERS)}"
        return values

    def __post_init__(self) -> None:
        if self.enable_idempotence:
            self._check_idempotence()
        one_request_ms = min(self.linger_ms + self.request_timeout_ms, INT_MAX)
        if self.delivery_timeout_ms < one_request_ms:
            raise ConfigError(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms plus "
                f"request_timeout_ms ({one_request_ms}): raise it, or lower request_timeout_ms"
            )

    def _check_idempotence(self) -> None:
        if self.acks != -1:
            raise ConfigError(f"enable_idempotence needs acks=all, not acks={self.acks}")
        if self.retries == 0:
            raise ConfigError("enable_idempotence needs retries, which are 0")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "max_in_flight_requests_per_connection must be at most 5 with enable_idempotence, "
                f"not {self.max_in_flight_requests_per_connection}"
            )


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The settings of an admin client."""

    connections_max_idle_ms: Annotated[int, Integer(-1, LONG_MAX)] = 300_000
    default_api_timeout_ms: Int = 60_000
    retries: Int = INT_MAX

    REFUSED: ClassVar = _REFUSED | {"bootstrap_controllers": "it talks to brokers: give bootstrap_servers"}

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Have a name of one's own."""
        values = super().derive(values)
        if not values.get("client_id"):
            values["client_id"] = f"admin-{next(_ADMINS)}"
        return values
