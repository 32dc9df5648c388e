"""The settings of an admin client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millstream.config.client import DEFAULT_API_TIMEOUT, MAX_IDLE, ClientConfig, IdleMs
from millstream.settings import INT_MAX, Int, setting


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The settings of an admin client."""

    connections_max_idle_ms: IdleMs = setting(300_000, MAX_IDLE)
    default_api_timeout_ms: Int = setting(60_000, DEFAULT_API_TIMEOUT)
    retries: Int = setting(
        INT_MAX, "How often a request is sent again. Leave it: default_api_timeout_ms is the better limit."
    )

    REFUSED: ClassVar = ClientConfig.REFUSED | {
        "bootstrap_controllers": "it talks to brokers: give bootstrap_servers"
    }
