"""What a client's settings mean for each of its connections."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.backoff import Backoff
from millstream.config import ClientConfig


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link, with the back-offs ready to use."""

    client_id: str
    software_version: str
    max_in_flight: int
    setup_timeout: Backoff
    reconnect: Backoff
    request_timeout_ms: int
    max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int

    @classmethod
    def of(cls, config: ClientConfig, *, max_in_flight: int, software_version: str) -> LinkSettings:
        return cls(
            client_id=config.client_id,
            software_version=software_version,
            max_in_flight=max_in_flight,
            setup_timeout=Backoff(
                config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
            ),
            reconnect=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            request_timeout_ms=config.request_timeout_ms,
            max_idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
        )
