"""The options of the source: names and meaning of Spark's own kafka source, and ``committed``.

Spark hands options over without their case, so they are known by their names in small letters, and named in
messages as they are written in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from millstream.config import ConsumerConfig
from millstream.errors import ConfigError
from millstream.model import TopicPartition
from millstream.settings import read_flag
from millstream.spark.planning.offsets import EARLIEST, LATEST, read_numbers, read_partitions
from millstream.suggestions import did_you_mean

T = TypeVar("T")

_KAFKA: Final = "kafka."

NAMES: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_BY_SMALL_NAME: Final = {name.lower(): name for name in NAMES}
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

# What the source decides by itself, and what to use instead.
_REFUSED: Final = {
    "auto.offset.reset": "use startingOffsets, and failOnDataLoss for what is not there any more",
    "enable.auto.commit": "with kafka.group.id, the source commits after each durable batch",
    "key.deserializer": "keys are binary: cast or decode the column",
    "value.deserializer": "values are binary: cast or decode the column",
    "group.instance.id": "the source reads without being a member of the group",
    "interceptor.classes": "transform the data frame instead",
}


# What comes with other formats, and what to do here. The first is a property of a table in Spark's catalog.
_OF_OTHERS: Final = {
    "provider": "Spark keeps a table's options from sources in Python: use CREATE TEMPORARY VIEW instead",
    "path": "topics are no files: name them with subscribe",
    "topic": "to read one, use subscribe; to write one, a Load with a TopicSink, or Spark's own kafka sink",
}


class Edge(Enum):
    """Where a partition's range starts or ends, when it is not an offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; LATEST and EARLIEST stand for the ends of the log."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class AtTimes:
    """A time in milliseconds since 1970, for all partitions or for each."""

    times: int | Mapping[TopicPartition, int]
    option: str
    or_latest: bool
    """Where nothing is that young: the end of the log, or else an error."""

    def of(self, partition: TopicPartition | None) -> int | None:
        """The time for a partition, or for all; None where it has none."""
        if isinstance(self.times, int):
            return self.times
        return None if partition is None else self.times.get(partition)


Place = Edge | AtOffsets | AtTimes


@dataclass(frozen=True, slots=True)
class Subscription:
    """What to read: topics by name, by pattern, or partitions. One of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def accepts(self, topic: str) -> bool:
        """Whether a topic belongs to the pattern, or to the names."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    @property
    def names(self) -> tuple[str, ...]:
        """The topics, where they are known by name."""
        return self.topics or tuple(sorted({each.topic for each in self.partitions}))


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options that were read and checked."""

    settings: Mapping[str, object]
    """A consumer's settings under Kafka's names, without the group."""
    subscription: Subscription
    starting: Place
    ending: Place = Edge.LATEST
    group_id: str | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    stall_ms: int = 120_000
    offset_retries: int = 3
    offset_retry_ms: int = 1_000
    ignored: tuple[str, ...] = field(default=())
    """Options that were given, and mean nothing here."""


def check_names(given: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that there is none of, naming the nearest."""
    for name, instead in _OF_OTHERS.items():
        if name in given:
            raise ConfigError(f"unknown option {name}: {instead}")
    for name in given:
        if name.startswith(_KAFKA) or name.lower() in _BY_SMALL_NAME:
            continue
        known = [*_BY_SMALL_NAME, *(f"{_KAFKA}{each}" for each in ("bootstrap.servers", "group.id"))]
        # A setting of Kafka's without its prefix is the most common mistake.
        prefixed = f"{_KAFKA}{name.lower()}"
        if name.lower().replace(".", "_") in ConsumerConfig.names():
            raise ConfigError(f"unknown option {name}: settings of Kafka's begin with kafka., use {prefixed}")
        hint = did_you_mean(name.lower(), known, show=lambda near: _BY_SMALL_NAME.get(near, near), cutoff=0.3)
        raise ConfigError(f"unknown option {name}" + (f": {hint}" if hint else ""), setting=name)


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether the column of headers is wanted."""
    return _Reader(given).flag("includeHeaders", False)


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check all options; raises ConfigError with what to do."""
    check_names(given)
    reader = _Reader(given)
    settings, group_id = _settings(given, reader.text("groupIdPrefix"))
    starting = _starting(reader, streaming=streaming)
    if starting is Edge.COMMITTED and group_id is None:
        raise ConfigError(
            "startingOffsets=committed needs the group whose offsets they are: set kafka.group.id"
        )
    if streaming:
        for name in _BATCH_ONLY:
            if reader.text(name) is not None:
                raise ConfigError(f"{name} makes no sense in a stream, which has no end: leave it out")
    options = SourceOptions(
        settings=settings,
        subscription=_subscription(reader),
        starting=starting,
        ending=Edge.LATEST if streaming else _ending(reader),
        group_id=group_id,
        fail_on_data_loss=reader.flag("failOnDataLoss", True),
        include_headers=reader.flag("includeHeaders", False),
        min_partitions=reader.number("minPartitions"),
        max_records_per_partition=reader.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=reader.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=reader.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=reader.duration_ms("maxTriggerDelay", 15 * 60_000),
        stall_ms=reader.number("kafkaConsumer.pollTimeoutMs") or 120_000,
        offset_retries=reader.number("fetchOffset.numRetries", lowest=0, otherwise=3) or 0,
        offset_retry_ms=reader.number("fetchOffset.retryIntervalMs", lowest=0, otherwise=1_000) or 0,
        ignored=() if streaming else tuple(name for name in _STREAM_ONLY if reader.text(name) is not None),
    )
    _check_limits(options)
    return options


def _check_limits(options: SourceOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger ({least}) must not exceed maxOffsetsPerTrigger ({most})")
    if isinstance(options.starting, AtTimes) and isinstance(options.ending, AtTimes):
        _check_times(options.starting, options.ending)


def _check_times(starting: AtTimes, ending: AtTimes) -> None:
    given = [place.times for place in (starting, ending)]
    named: set[TopicPartition | None] = {
        each for times in given if not isinstance(times, int) for each in times
    }
    for each in named or {None}:
        first, last = starting.of(each), ending.of(each)
        if first is not None and last is not None and last < first:
            where = "" if each is None else f" for {each}"
            raise ConfigError(f"{ending.option} ({last}) is before {starting.option} ({first}){where}")


def _settings(given: Mapping[str, str], prefix: str | None) -> tuple[dict[str, object], str | None]:
    """The settings for Kafka, checked as a consumer checks its own; and the group."""
    kafka: dict[str, object] = {
        name[len(_KAFKA) :]: value for name, value in given.items() if name.startswith(_KAFKA)
    }
    for name, instead in _REFUSED.items():
        if name in kafka:
            raise ConfigError(f"{_KAFKA}{name} cannot be set: {instead}")
    if "bootstrap.servers" not in kafka:
        raise ConfigError("the option kafka.bootstrap.servers is missing: name a broker, as host:port")
    try:
        config = ConsumerConfig.from_settings(kafka, {})
    except ConfigError as error:
        raise ConfigError(f"among the options that begin with kafka.: {error}") from error
    kafka.pop("group.id", None)
    if prefix is not None:
        kafka.setdefault("client.id", prefix)
    return kafka, config.group_id


def _subscription(reader: _Reader) -> Subscription:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if reader.text(name) is not None]
    if len(chosen) != 1:
        given = f"not {' and '.join(chosen)} together" if chosen else "none is given"
        raise ConfigError(f"say what to read with one of subscribe, subscribePattern and assign: {given}")
    topics = reader.read("subscribe", _read_topics)
    if topics is not None:
        return Subscription(topics=topics)
    pattern = reader.read("subscribePattern", _read_pattern)
    if pattern is not None:
        return Subscription(pattern=pattern)
    text = reader.text("assign")
    assert text is not None, "one of three"
    return Subscription(partitions=read_partitions(text, "assign"))


def _read_topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not topics:
        raise ValueError("must name at least one topic")
    return topics


def _read_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return text.strip()


def _starting(reader: _Reader, *, streaming: bool) -> Place:
    place = _timed(reader, "starting")
    if place is not None:
        return place
    text = reader.text("startingOffsets")
    if text is None:
        return Edge.LATEST if streaming else Edge.EARLIEST
    if text.startswith("{"):
        offsets = read_numbers(text, "startingOffsets", lowest=EARLIEST)
        if not streaming and LATEST in offsets.values():
            raise ConfigError("startingOffsets: -1 (latest) makes no sense in a batch, which would be empty")
        return AtOffsets(offsets, "startingOffsets")
    words = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST, "committed": Edge.COMMITTED}
    found = words.get(text.lower())
    if found is None:
        raise ConfigError(
            f"startingOffsets must be earliest, latest, committed or JSON such as "
            f'{{"orders": {{"0": 23}}}}, not {text!r}'
        )
    if found is Edge.LATEST and not streaming:
        raise ConfigError("startingOffsets=latest makes no sense in a batch, which would be empty")
    return found


def _ending(reader: _Reader) -> Place:
    place = _timed(reader, "ending")
    if place is not None:
        return place
    text = reader.text("endingOffsets")
    if text is None or text.lower() == "latest":
        return Edge.LATEST
    if text.startswith("{"):
        offsets = read_numbers(text, "endingOffsets", lowest=LATEST)
        return AtOffsets(offsets, "endingOffsets")
    raise ConfigError(f'endingOffsets must be latest or JSON such as {{"orders": {{"0": 23}}}}, not {text!r}')


def _timed(reader: _Reader, end: str) -> AtTimes | None:
    """Offsets by time, which come before any other way to say where; one time comes before many."""
    strategy = (reader.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}")
    or_latest = end == "ending" or strategy == "latest"
    one = reader.number(f"{end}Timestamp", lowest=0)
    if one is not None:
        return AtTimes(one, f"{end}Timestamp", or_latest)
    text = reader.text(f"{end}OffsetsByTimestamp")
    if text is not None:
        name = f"{end}OffsetsByTimestamp"
        return AtTimes(read_numbers(text, name, lowest=0), name, or_latest)
    return None


_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Reader:
    """Takes options by their documented names; white space around values is dropped."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def read(self, name: str, convert: Callable[[str], T]) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return convert(text)
        except ValueError as error:
            raise ConfigError(f"{name} {error}, not {text!r}") from error

    def flag(self, name: str, otherwise: bool) -> bool:
        found = self.read(name, read_flag)
        return otherwise if found is None else found

    def number(self, name: str, *, lowest: int = 1, otherwise: int | None = None) -> int | None:
        def convert(text: str) -> int:
            if not text.isdigit() or int(text) < lowest:
                raise ValueError(f"must be a whole number of at least {lowest}")
            return int(text)

        found = self.read(name, convert)
        return otherwise if found is None else found

    def duration_ms(self, name: str, otherwise: int) -> int:
        def convert(text: str) -> int:
            match = _DURATION.fullmatch(text)
            if match is None:
                raise ValueError("must be a time such as 15m, 30s or 500ms")
            return int(match[1]) * _UNITS_MS[(match[2] or "ms").lower()]

        found = self.read(name, convert)
        return otherwise if found is None else found
