"""The settings of a consumer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from millstream.config.client import DEFAULT_API_TIMEOUT, NOT_YET, ClientConfig
from millstream.config.registry import RegistrySettings
from millstream.errors import ConfigError
from millstream.serde import DeserializerChoice
from millstream.settings import Choice, Flag, Int, Names, PositiveInt, Text, read_text, setting

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
        raise ConfigError(f"the new group protocol is not supported, use classic: {NOT_YET}")
    return Choice(("classic",))(protocol)


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig, RegistrySettings):
    """The settings of a consumer."""

    allow_auto_create_topics: Flag = setting(
        True,
        "Whether subscribing to a missing topic may create it, if the broker does that. Turn it off to get "
        "an error for a misspelled name.",
    )
    auto_commit_interval_ms: Int = setting(
        5_000, "How often poll() commits automatically: at most this much is read twice after a crash."
    )
    auto_offset_reset: Annotated[str, _read_offset_reset] = setting(
        "latest",
        "Where to start when there is no committed offset, or its record is gone: earliest, latest, none (an "
        "error), or `by_duration:PT1H`. Choose earliest when nothing may be missed.",
    )
    check_crcs: Flag = setting(True, "Whether checksums of batches are verified. Leave it on.")
    client_rack: Text = setting(
        "", "The rack or zone of this client: it then reads from a replica there, if the cluster has one."
    )
    default_api_timeout_ms: Int = setting(60_000, DEFAULT_API_TIMEOUT)
    enable_auto_commit: Flag = setting(
        True,
        "Whether poll() and close() commit automatically; false without a group_id. Turn it off when a "
        "record is done only after your own work.",
    )
    exclude_internal_topics: Flag = setting(True, "Whether a pattern leaves out `__consumer_offsets`.")
    fetch_max_bytes: Int = setting(52_428_800, "The most bytes in one fetch response, of all partitions.")
    fetch_max_wait_ms: Int = setting(500, "How long the broker waits for fetch_min_bytes at most.")
    fetch_min_bytes: Int = setting(
        1, "The broker answers when it has this much. Raise it for fewer, larger responses with more latency."
    )
    group_id: Annotated[str, _read_group_id] | None = setting(
        None, "The group to share partitions with and to commit to; leave it out to read alone."
    )
    group_instance_id: Annotated[str, _read_instance_id] | None = setting(
        None,
        "Makes a static member: a restart within the session causes no rebalance. Unique in its group.",
    )
    group_protocol: Annotated[str, _read_group_protocol] = setting("classic", "Only classic so far.")
    heartbeat_interval_ms: PositiveInt = setting(
        3_000,
        "How often a member sends a heartbeat: at most a third of session_timeout_ms. The default is a third "
        "when the session is 3000 or shorter.",
    )
    isolation_level: Annotated[str, Choice(("read_uncommitted", "read_committed"))] = setting(
        "read_uncommitted", "read_committed leaves out records of open and aborted transactions."
    )
    key_deserializer: DeserializerChoice = setting(
        "bytes",
        "How keys become objects: a name from the list below, `registry`, a callable from bytes, "
        "or an object whose `deserialize` takes topic, headers and bytes.",
    )
    max_partition_fetch_bytes: Int = setting(
        1_048_576,
        "The most bytes of one partition in one response; a larger record still comes. Raise it for large "
        "records or few partitions.",
    )
    max_poll_interval_ms: PositiveInt = setting(
        300_000,
        "A member that does not call poll() for this long loses its partitions. Raise it, or lower "
        "max_poll_records, when work on one batch takes long.",
    )
    max_poll_records: PositiveInt = setting(500, "The most records that one poll() returns.")
    partition_assignment_strategy: Names = setting(
        ("range", "cooperative-sticky"),
        "How the group shares partitions: names, Kafka's class names, classes or objects, preferred first. "
        "`cooperative-sticky` moves the fewest partitions.",
        shown="range, cooperative-sticky",
    )
    queued_max_bytes: PositiveInt = setting(
        67_108_864, "Only in millstream: the most bytes of fetched data that wait for poll(). Bounds memory."
    )
    session_timeout_ms: PositiveInt = setting(
        45_000, "A member that is silent for this long is removed. Lower it to notice crashes sooner."
    )
    value_deserializer: DeserializerChoice = setting(
        "bytes",
        "How values become objects: a name from the list below, `registry`, a callable from bytes, "
        "or an object whose `deserialize` takes topic, headers and bytes.",
    )

    REFUSED: ClassVar = ClientConfig.REFUSED | {
        "group_remote_assignor": "it belongs to the new group protocol, which is not implemented yet",
        "share_acknowledgement_mode": "share groups are not implemented yet",
    }

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def auto_offset_reset_duration_ms(self) -> int | None:
        """How far back ``by_duration`` goes; None for the other strategies."""
        return _duration_ms(self.auto_offset_reset.partition(":")[2])

    @classmethod
    def derive(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Commit automatically only in a group; send heartbeats at a third of a short session."""
        if "group_id" not in values:
            values.setdefault("enable_auto_commit", False)
        session_ms = values.get("session_timeout_ms", cls.session_timeout_ms)
        if session_ms <= cls.heartbeat_interval_ms:
            values.setdefault("heartbeat_interval_ms", max(1, session_ms // 3))
        return super().derive(values)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_registry(
            {"key_deserializer": self.key_deserializer, "value_deserializer": self.value_deserializer}
        )
        if not self.partition_assignment_strategy:
            raise ConfigError(
                "partition_assignment_strategy is empty: name at least one assignor",
                setting="partition_assignment_strategy",
            )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than session_timeout_ms "
                f"({self.session_timeout_ms}), and a third of it at best",
                setting="heartbeat_interval_ms",
            )
        if self.group_id is None and self.group_instance_id is not None:
            raise ConfigError("group_instance_id needs a group_id", setting="group_instance_id")
        if self.group_id is None and self.enable_auto_commit:
            raise ConfigError(
                "enable_auto_commit needs a group_id to commit to", setting="enable_auto_commit"
            )
