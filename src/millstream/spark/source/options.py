"""The options of the source, each declared once: those of Spark's kafka source, and ``committed``.

Spark passes option names in lower case, so names are compared in lower case and shown as documented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from millstream.config import ConsumerConfig
from millstream.errors import ConfigError
from millstream.model import TopicPartition
from millstream.settings import read_flag
from millstream.spark.options.kafka_settings import PREFIX, SLIP
from millstream.spark.planning.offsets import LATEST
from millstream.spark.source import values
from millstream.spark.source.kafka_settings import read_kafka_settings
from millstream.spark.source.values import NamedOffset, OffsetBound, SpecificOffsets, SpecificTimestamps
from millstream.suggestions import did_you_mean

# Options that jobs pass along for others: Spark itself, the writer, and tables of Spark's catalog.
_OF_OTHERS: Final = frozenset({"checkpointlocation", "topic", "path", "provider"})


@dataclass(frozen=True, slots=True)
class SourceOption:
    """One option: its name, how its text is read, its default, and its row in docs/spark.md."""

    name: str
    read: Callable[[str], Any]
    default: Any
    meaning: str
    shown: str | None = None
    """The default as the documentation shows it, if that is not its text."""
    only: Literal["batches", "streams"] | None = None

    def of(self, given: Mapping[str, str]) -> Any:
        """The value in ``given`` (names in lower case), or the default. Raises ConfigError."""
        text = given.get(self.name.lower())
        if text is None:
            return self.default
        try:
            return self.read(text.strip())
        except ValueError as error:
            raise ConfigError(f"{self.name} {error}, not {text!r}") from error


def _option(name: str, read: Callable[..., Any], default: Any, meaning: str, **more: Any) -> Any:
    return field(default=default, metadata={"option": SourceOption(name, read, default, meaning, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options that were read and checked. Each field with ``_option`` declares one."""

    streaming: bool
    settings: Mapping[str, object] = field(repr=False)
    """A consumer's settings under Kafka's names, without the group."""
    group_id: str | None
    ignored: tuple[str, ...] = ()
    """Options that were given and have no effect."""

    topics: tuple[str, ...] = _option(
        "subscribe", values.read_topics, (), "topics, separated by commas", shown="one of three"
    )
    pattern: str | None = _option(
        "subscribePattern",
        values.read_pattern,
        None,
        "a regular expression that is found anywhere in a topic's name; `^orders$` is the whole name",
    )
    partitions: tuple[TopicPartition, ...] = _option(
        "assign", values.read_partitions, (), 'partitions: `{"orders": [0, 1]}`'
    )
    starting_offsets: OffsetBound | None = _option(  # noqa: RUF009 - a field
        "startingOffsets",
        values.read_starting_offsets,
        None,
        '`earliest`, `latest` (streams only), `committed`, or `{"orders": {"0": 23, "1": -2}}`: '
        "an offset for each partition, -2 for earliest, -1 for latest",
        shown="`earliest`; a stream: `latest`",
    )
    starting_timestamp: int | None = _option(
        "startingTimestamp", values.natural, None, "start at this time, in milliseconds since 1970"
    )
    starting_timestamps: Mapping[TopicPartition, int] | None = _option(
        "startingOffsetsByTimestamp", values.numbers(0), None, 'as in `{"orders": {"0": 1700000000000}}`'
    )
    strategy: str = _option(
        "startingOffsetsByTimestampStrategy",
        values.read_strategy,
        "error",
        "if no record is that recent: `error`, or `latest`",
    )
    ending_offsets: OffsetBound | None = _option(  # noqa: RUF009 - a field
        "endingOffsets",
        values.read_ending_offsets,
        None,
        "`latest`, or an offset for each partition, -1 for latest",
        shown="`latest`",
        only="batches",
    )
    ending_timestamp: int | None = _option(
        "endingTimestamp", values.natural, None, "end before this time", only="batches"
    )
    ending_timestamps: Mapping[TopicPartition, int] | None = _option(
        "endingOffsetsByTimestamp", values.numbers(0), None, "the same by partition", only="batches"
    )
    fail_on_data_loss: bool = _option(
        "failOnDataLoss", read_flag, True, "whether [data loss](#data-loss) fails, or is logged and skipped"
    )
    include_headers: bool = _option("includeHeaders", read_flag, False, "add the column `headers`")
    min_partitions: int | None = _option(
        "minPartitions", values.positive, None, "at least this number of tasks: splits large partitions"
    )
    max_records_per_partition: int | None = _option(
        "maxRecordsPerPartition", values.positive, None, "at most this number of offsets in a task"
    )
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger",
        values.positive,
        None,
        "about this number of offsets in a micro-batch, shared among partitions in proportion; at least 1",
        only="streams",
    )
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger",
        values.positive,
        None,
        "wait for this number, up to `maxTriggerDelay`; not in the first batch",
        only="streams",
    )
    max_trigger_delay_ms: int = _option(
        "maxTriggerDelay",
        values.read_duration_ms,
        15 * 60_000,
        "as `500ms`, `30s`, `15m`, `2h` or `1d`; a number alone is milliseconds",
        shown="`15m`",
        only="streams",
    )
    commit_offsets: bool | None = _option(
        "commitOffsets",
        read_flag,
        None,
        "commit progress for [the group](#progress-in-a-consumer-group) after each durable batch",
        shown="`false`; with `startingOffsets=committed`: `true`",
        only="streams",
    )
    group_id_prefix: str | None = _option(
        "groupIdPrefix",
        str,
        None,
        "no effect: Spark's source generates group ids with it, this one needs none",
    )
    metadata_cache_ms: str | None = _option(
        "partition.metadata.cache.ttl.ms", str, None, "no effect: partitions are looked up for every batch"
    )
    stall_ms: int = _option(
        "kafkaConsumer.pollTimeoutMs", values.positive, 120_000, "fail a task without records for this long"
    )
    offset_retries: int = _option(
        "fetchOffset.numRetries", values.natural, 3, "retries before a topic counts as gone or truncated"
    )
    offset_retry_ms: int = _option(
        "fetchOffset.retryIntervalMs", values.natural, 1_000, "the pause between these retries"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are selected by name; empty for a pattern."""
        return self.topics or tuple(sorted({each.topic for each in self.partitions}))

    def accepts(self, topic: str) -> bool:
        """Whether the pattern is found in ``topic``, as in Spark's source, or ``topic`` is named."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.names

    @property
    def commits_progress(self) -> bool:
        """Whether a stream commits for the group: only if it was asked to, as others may own the group."""
        if self.commit_offsets is not None:
            return self.commit_offsets
        return self.starting_offsets is NamedOffset.COMMITTED

    @property
    def starting(self) -> OffsetBound:
        """Where to start: timestamps before offsets."""
        or_latest = self.strategy == "latest"
        times = _timestamps("starting", self.starting_timestamp, self.starting_timestamps, or_latest)
        default = NamedOffset.LATEST if self.streaming else NamedOffset.EARLIEST
        return times or self.starting_offsets or default

    @property
    def ending(self) -> OffsetBound:
        """Where a batch ends: timestamps before offsets."""
        times = _timestamps("ending", self.ending_timestamp, self.ending_timestamps, or_latest=True)
        return times or self.ending_offsets or NamedOffset.LATEST


def _timestamps(
    side: str, one: int | None, many: Mapping[TopicPartition, int] | None, or_latest: bool
) -> SpecificTimestamps | None:
    """One timestamp for all partitions goes before one for each."""
    if one is not None:
        return SpecificTimestamps(one, f"{side}Timestamp", or_latest)
    return None if many is None else SpecificTimestamps(many, f"{side}OffsetsByTimestamp", or_latest)


OPTIONS: Final[Mapping[str, SourceOption]] = {
    each.name: each.metadata["option"] for each in fields(SourceOptions) if each.metadata
}
"""Every option, by the field that holds it."""
NAMES: Final = tuple(option.name for option in OPTIONS.values())
_BY_LOWER_CASE: Final = {name.lower(): name for name in NAMES}


def _unknown_names(given: Iterable[str]) -> tuple[str, ...]:
    """Options that no one here knows. Raises ConfigError for one that is likely a slip."""
    known = [*_BY_LOWER_CASE, f"{PREFIX}bootstrap.servers", f"{PREFIX}group.id"]
    unknown = []
    for name in given:
        lower = name.lower()
        if lower.startswith(PREFIX) or lower in _BY_LOWER_CASE or lower in _OF_OTHERS:
            continue
        if ConsumerConfig.knows(lower):  # the most common mistake
            raise ConfigError(
                f"unknown option {name}: Kafka's settings begin with {PREFIX}, use {PREFIX}{lower}"
            )
        if hint := did_you_mean(lower, known, show=lambda near: _BY_LOWER_CASE.get(near, near), cutoff=SLIP):
            raise ConfigError(f"unknown option {name}: {hint}")
        unknown.append(name)
    return tuple(unknown)


def check_options(given: Mapping[str, str]) -> None:
    """Raise ConfigError for options that are wrong in a batch and in a stream: Spark asks before it knows."""
    try:
        read_options(given, streaming=False)
    except ConfigError as error:
        try:
            read_options(given, streaming=True)
        except ConfigError:
            raise error from None


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether ``given`` asks for the column ``headers``."""
    return bool(OPTIONS["include_headers"].of(_lower_case(given)))


def read_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Read and check all options. Raises ConfigError that says what to do."""
    unknown = _unknown_names(given)
    lower = _lower_case(given)
    without_effect = "batches" if streaming else "streams"
    misplaced = tuple(
        option.name
        for option in OPTIONS.values()
        if option.only == without_effect and option.name.lower() in lower
    )
    if streaming and misplaced:
        raise ConfigError(f"{misplaced[0]} is for batches: a stream has no end, leave it out")
    found = {name: option.of(lower) for name, option in OPTIONS.items()}
    kafka = {name.removeprefix(PREFIX): text for name, text in lower.items() if name.startswith(PREFIX)}
    settings, group_id, unused = read_kafka_settings(kafka)
    ignored = (*unknown, *misplaced, *unused)
    options = SourceOptions(
        streaming=streaming, settings=settings, group_id=group_id, ignored=ignored, **found
    )
    _check(options)
    return options


def _lower_case(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _check(options: SourceOptions) -> None:
    """Raise ConfigError for options that do not go together."""
    chosen = {"subscribe": options.topics, "subscribePattern": options.pattern, "assign": options.partitions}
    given = [name for name, value in chosen.items() if value not in (None, ())]
    if len(given) != 1:
        found = f"not {' and '.join(given)} together" if given else "none is given"
        raise ConfigError(f"say what to read with one of subscribe, subscribePattern and assign: {found}")
    starting, ending = options.starting, options.ending
    if starting is NamedOffset.COMMITTED and options.group_id is None:
        raise ConfigError("startingOffsets=committed needs a group: set kafka.group.id")
    if options.commit_offsets and options.group_id is None:
        raise ConfigError("commitOffsets=true needs a group: set kafka.group.id")
    starts_at_latest = starting is NamedOffset.LATEST or (
        isinstance(starting, SpecificOffsets) and LATEST in starting.offsets.values()
    )
    if starts_at_latest and not options.streaming:
        raise ConfigError("startingOffsets: latest (-1) would leave a batch empty: start earlier")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger ({least}) must not exceed maxOffsetsPerTrigger ({most})")
    if isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        _check_order(starting, ending)
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_offsets(starting, ending)


def _check_offsets(starting: SpecificOffsets, ending: SpecificOffsets) -> None:
    """Both must name the same partitions, and none may end before it starts."""
    if differing := sorted(starting.offsets.keys() ^ ending.offsets.keys()):
        raise ConfigError(
            f"startingOffsets and endingOffsets must name the same partitions: only one of them names "
            f"{', '.join(map(str, differing))}"
        )
    for each, end in sorted(ending.offsets.items()):
        if 0 <= end < starting.offsets[each]:
            raise ConfigError(
                f"endingOffsets: {each} ends at {end}, before startingOffsets {starting.offsets[each]}"
            )


def _check_order(starting: SpecificTimestamps, ending: SpecificTimestamps) -> None:
    named: set[TopicPartition | None] = set()
    for bound in (starting, ending):
        if not isinstance(bound.times, int):
            named |= bound.times.keys()
    for each in named or {None}:
        first, last = starting.of(each), ending.of(each)
        if first is not None and last is not None and last < first:
            where = "" if each is None else f" for {each}"
            raise ConfigError(f"{ending.option} ({last}) is before {starting.option} ({first}){where}")
