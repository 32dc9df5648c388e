"""The settings of a producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from millstream.config.client import RECEIVE_BUFFER, BufferBytes, ClientConfig
from millstream.config.registry import RegistryWriterSettings
from millstream.errors import ConfigError
from millstream.serde import SerializerChoice
from millstream.settings import INT_MAX, LONG_MAX, Choice, Flag, Int, Integer, Long, PositiveInt, setting
from millstream.wire.records.codecs import CODECS, CompressionLevels

_TRANSACTIONS = "transactions are not implemented yet"
_PARTITIONER = "keys decide as in Kafka's own producer; give partition= to send() to choose another partition"


def _read_acks(value: object) -> int:
    """Read the number of acknowledgements that a batch needs: -1 is all."""
    word = value.strip() if isinstance(value, str) else value
    if word in ("all", "-1", -1):
        return -1
    if word in ("0", "1", 0, 1) and not isinstance(word, bool):
        return int(str(word))
    raise ValueError("must be all, 1 or 0")


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig, CompressionLevels, RegistryWriterSettings):
    """The settings of a producer. ``acks`` is -1 for all."""

    acks: Annotated[int, _read_acks] = setting(
        -1,
        "When a record counts as sent: all (on the disk of every in-sync replica), 1 (the leader has it), 0 "
        "(not acknowledged).",
        shown="all",
    )
    batch_size: Int = setting(
        16_384, "The most bytes in one batch of a partition. Raise it, with linger_ms, for throughput."
    )
    buffer_memory: Long = setting(33_554_432, "The most bytes that wait to be sent; then send() blocks.")
    compression_type: Annotated[str, Choice(CODECS)] = setting(
        "none", f"How batches are compressed: {', '.join(CODECS)}. lz4 takes little time, zstd little space."
    )
    delivery_timeout_ms: Int = setting(
        120_000,
        "How long a record may take from send() until it fails, retries included; at least linger_ms + "
        "request_timeout_ms.",
    )
    enable_idempotence: Flag = setting(
        True, "Retries store a record once, and in order; false when acks is not all or retries is 0."
    )
    key_serializer: SerializerChoice = setting(
        "bytes",
        "How keys become bytes: a name from the list below, `registry`, a callable to bytes, or "
        "an object whose `serialize` takes topic, headers and value.",
    )
    linger_ms: Long = setting(
        5, "How long a batch waits for more records: 0 for latency, 20 to 100 for throughput."
    )
    max_block_ms: Long = setting(60_000, "How long send() waits for memory or metadata.")
    max_in_flight_requests_per_connection: PositiveInt = setting(5, "At most 5 with enable_idempotence.")
    max_request_size: Int = setting(1_048_576, "The largest record, and the largest request, in bytes.")
    metadata_max_idle_ms: Annotated[int, Integer(5_000, LONG_MAX)] = setting(
        300_000, "The metadata of a topic is dropped after this time without a send."
    )
    receive_buffer_bytes: BufferBytes = setting(32_768, RECEIVE_BUFFER)
    retries: Int = setting(
        INT_MAX, "How often a request is sent again. Leave it: delivery_timeout_ms is the better limit."
    )
    value_serializer: SerializerChoice = setting(
        "bytes",
        "How values become bytes: a name from the list below, `registry`, a callable to bytes, or "
        "an object whose `serialize` takes topic, headers and value.",
    )

    REFUSED: ClassVar = ClientConfig.REFUSED | {
        "transactional_id": _TRANSACTIONS,
        "transaction_*": _TRANSACTIONS,
        "partitioner_*": _PARTITIONER,
    }

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Turn idempotence off when acks or retries exclude it; fit delivery_timeout_ms to one request."""
        if values.get("acks", -1) != -1 or values.get("retries") == 0:
            values.setdefault("enable_idempotence", False)
        one_request_ms = values.get("linger_ms", cls.linger_ms) + values.get(
            "request_timeout_ms", cls.request_timeout_ms
        )
        if one_request_ms > cls.delivery_timeout_ms:
            values.setdefault("delivery_timeout_ms", min(one_request_ms, INT_MAX))
        return super().derive(values)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_registry(
            {"key_serializer": self.key_serializer, "value_serializer": self.value_serializer}
        )
        if self.enable_idempotence:
            self._check_idempotence()
        one_request_ms = min(self.linger_ms + self.request_timeout_ms, INT_MAX)
        if self.delivery_timeout_ms < one_request_ms:
            raise ConfigError(
                f"delivery_timeout_ms ({self.delivery_timeout_ms}) must be at least linger_ms plus "
                f"request_timeout_ms ({one_request_ms}): raise it, or lower request_timeout_ms",
                setting="delivery_timeout_ms",
            )

    def _check_idempotence(self) -> None:
        if self.acks != -1:
            raise ConfigError(f"enable_idempotence needs acks=all, not acks={self.acks}", setting="acks")
        if self.retries == 0:
            raise ConfigError("enable_idempotence needs retries, which are 0", setting="retries")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "max_in_flight_requests_per_connection must be at most 5 with enable_idempotence, "
                f"not {self.max_in_flight_requests_per_connection}",
                setting="max_in_flight_requests_per_connection",
            )
