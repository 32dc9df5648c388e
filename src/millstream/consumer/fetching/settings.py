"""What the fetcher needs to know: the part of a consumer's settings that is about reading."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.client.backoff import Backoff
from millstream.config import ConsumerConfig

MEBIBYTE = 1024 * 1024
_RETRY_BACKOFF = Backoff(initial_ms=100, max_ms=1_000)


class ResetStrategy(Enum):
    """Where to start when there is no offset to start from, or it is not in the log any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    """The first record that is not older than a given age; the end where there is none (KIP-1106)."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Kafka's settings under Kafka's names and with Kafka's defaults, and two of our own."""

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * MEBIBYTE
    max_partition_fetch_bytes: int = MEBIBYTE
    check_crcs: bool = True
    read_committed: bool = False
    client_rack: str = ""
    auto_offset_reset: ResetStrategy | None = ResetStrategy.LATEST
    """None: a position that is lost is an error."""
    reset_duration_ms: int = 0
    """How far back BY_DURATION goes."""
    uses_committed: bool = True
    """Whether there is a group, whose committed offsets come before any reset."""
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    retry_backoff: Backoff = _RETRY_BACKOFF
    queued_max_bytes: int = 64 * MEBIBYTE
    """Our own: how much fetched data may wait to be handed out. A single larger batch still gets through."""
    max_decompressed_bytes: int = 256 * MEBIBYTE
    """Our own: the largest batch, decompressed, that is read. It stops decompression bombs."""

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> FetchSettings:
        """Take what concerns reading from the settings of a consumer."""
        strategy = config.auto_offset_reset.partition(":")[0]
        return cls(
            fetch_min_bytes=config.fetch_min_bytes,
            fetch_max_wait_ms=config.fetch_max_wait_ms,
            fetch_max_bytes=config.fetch_max_bytes,
            max_partition_fetch_bytes=config.max_partition_fetch_bytes,
            check_crcs=config.check_crcs,
            read_committed=config.isolation_level == "read_committed",
            client_rack=config.client_rack,
            auto_offset_reset=None if strategy == "none" else ResetStrategy(strategy),
            reset_duration_ms=config.auto_offset_reset_duration_ms or 0,
            uses_committed=config.group_id is not None,
            request_timeout_ms=config.request_timeout_ms,
            metadata_max_age_ms=config.metadata_max_age_ms,
            retry_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            queued_max_bytes=config.queued_max_bytes,
        )
