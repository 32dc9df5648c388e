"""The settings that consumer, producer and admin share."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from millstream.config.security import SecuritySettings
from millstream.settings import (
    INT_MAX,
    LONG_MAX,
    REQUIRED,
    Addresses,
    Choice,
    Int,
    Integer,
    Long,
    Text,
    setting,
)

BufferBytes = Annotated[int, Integer(-1, INT_MAX)]
"""The size of a socket's buffer; -1 leaves it to the operating system."""
IdleMs = Annotated[int, Integer(-1, LONG_MAX)]
"""The time after which an idle connection is closed; -1 keeps it."""

# The meanings of settings that two clients declare, each with its own default.
RECEIVE_BUFFER: Final = "The socket's receive buffer; -1 leaves it to the system."
MAX_IDLE: Final = "An idle connection is closed after this time; -1 keeps it open."
DEFAULT_API_TIMEOUT: Final = "The timeout of calls that are not given one."

NOT_YET: Final = "it is not implemented yet"


_CLIENT_NUMBERS: defaultdict[str, itertools.count[int]] = defaultdict(lambda: itertools.count(1))


@dataclass(frozen=True, kw_only=True)
class ClientConfig(SecuritySettings):
    """The settings that consumer, producer and admin share."""

    bootstrap_servers: Addresses = setting(
        REQUIRED,
        "Where to find the cluster: `host:port,host:port`, or a list; `[::1]:9092` for IPv6. One broker is "
        "enough; a second one helps when the first is down.",
    )
    client_dns_lookup: Annotated[str, Choice(("use_all_dns_ips",))] = setting(
        "use_all_dns_ips", "All addresses of a host name are tried in turn: only use_all_dns_ips."
    )
    client_id: Text = setting(
        "",
        "The name that brokers log and show; set it to find this client in `group describe`.",
        shown="a generated name",
    )
    connections_max_idle_ms: IdleMs = setting(540_000, MAX_IDLE)
    metadata_max_age_ms: Long = setting(
        300_000,
        "How often topics, partitions and leaders are refreshed. Lower it to find new partitions, and new "
        "topics of a pattern, sooner.",
    )
    metadata_recovery_rebootstrap_trigger_ms: Int = setting(
        300_000, "The same after this time without metadata, although brokers can be reached."
    )
    metadata_recovery_strategy: Annotated[str, Choice(("rebootstrap", "none"))] = setting(
        "rebootstrap",
        "When no known broker can be reached, start again from `bootstrap_servers`, and resolve their names "
        "again; with none, only the known brokers are tried.",
    )
    receive_buffer_bytes: BufferBytes = setting(65_536, RECEIVE_BUFFER)
    reconnect_backoff_max_ms: Long = setting(1_000, "The longest pause between attempts to connect.")
    reconnect_backoff_ms: Long = setting(50, "The first pause before connecting again; doubles each time.")
    request_timeout_ms: Int = setting(30_000, "How long a request may take before it is sent again.")
    retry_backoff_max_ms: Long = setting(1_000, "The longest pause before a failed request is sent again.")
    retry_backoff_ms: Long = setting(100, "The first pause before a failed request is sent again; doubles.")
    send_buffer_bytes: BufferBytes = setting(131_072, "The socket's send buffer; -1 leaves it to the system.")
    socket_connection_setup_timeout_max_ms: Long = setting(30_000, "The longest timeout of connecting.")
    socket_connection_setup_timeout_ms: Long = setting(
        10_000, "The first timeout of connecting; doubles each time."
    )

    REFUSED: ClassVar = {
        **SecuritySettings.REFUSED,
        "metric_reporters": "read metrics() instead",
        "interceptor_classes": "wrap the calls in your own code, or use a callable as the (de)serializer",
    }
    WITHOUT_EFFECT: ClassVar = SecuritySettings.WITHOUT_EFFECT | frozenset(
        {"enable_metrics_push", "metrics_num_samples", "metrics_recording_level", "metrics_sample_window_ms"}
    )

    @classmethod
    def client(cls) -> str:
        """Return what the settings are of: consumer, producer or admin."""
        return cls.__name__.removesuffix("Config").lower()

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Raise a maximum that is a default to the first pause that was given; generate a ``client_id``."""
        for name in ("reconnect_backoff", "retry_backoff", "socket_connection_setup_timeout"):
            given = values.get(f"{name}_ms", 0)
            if given > getattr(cls, f"{name}_max_ms"):
                values.setdefault(f"{name}_max_ms", given)
        if not values.get("client_id"):
            client = cls.client()
            own = values.get("group_instance_id") or str(next(_CLIENT_NUMBERS[client]))
            values["client_id"] = "-".join(filter(None, [client, values.get("group_id"), own]))
        return super().derive(values)

    @classmethod
    def unknown(cls, name: str, spelling: str) -> str:
        """Return the message for an unknown setting, or for one of another client."""
        for other in ClientConfig.__subclasses__():
            if name in other.names():
                return f"{spelling} is a setting of the {other.client()}, not of this client: leave it out"
        return super().unknown(name, spelling)
