"""The settings of a load, each declared once: Load, the command line and the docs derive from them.

To add a setting, add a field, and the code that uses it. It is a field of ``Shaping`` where it decides how a
record becomes a row, as tasks and ``load replay`` need it then, else of ``LoadSettings``. ``about`` says what
it is for, which values it takes, and with ``Option`` how the command line spells it. In the sentence, other
settings stand in backquotes: the command line shows their options instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal

from millstream.errors import ConfigError
from millstream.spark.load.declarations import (
    CYCLES,
    SHAPE,
    SPARK,
    START,
    TABLE,
    Option,
    Setting,
    about,
    declared,
    options,
    setting,
)
from millstream.suggestions import nearest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.load.points import Observer
    from millstream.spark.sinks.base import Sink

RAW: Final = "raw"
FORMATS: Final = (RAW, "json", "avro", "csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaping:
    """How records become rows: plain values that travel to the tasks. Lists are accepted for sequences.

    Raises ConfigError for what is wrong without looking at any record.
    """

    topics: Sequence[str] = setting(
        (), "The topics. `sql` finds the rows of a single topic under its name as well."
    )
    value_format: str | None = setting(
        None,
        "The format of values: raw, json, avro or csv.",
        Option(SHAPE, "FORMAT", default="json with `schema`, avro with `avro_schema`, else raw"),
        choices=FORMATS,
    )
    schema: str | None = setting(
        None,
        "The columns in Spark's DDL, such as 'id LONG, price DOUBLE'.",
        Option(SHAPE, "COLUMNS", reads="text or file"),
    )
    checks: Sequence[str] = setting(
        (),
        "SQL conditions; a row is rejected unless all are true.",
        Option(SHAPE, "CONDITION", ("--check",), "Reject rows for which this is not true; repeatable."),
    )
    sql: str | None = setting(
        None, "A query over the good rows, FROM batch.", Option(SHAPE, "QUERY", reads="text or file")
    )
    headers: bool = setting(
        True,
        "Read headers, for the raw table and for rejected rows.",
        Option(SHAPE, "", ("--no-headers",), "Leave headers out.", negates=True, in_replay=False),
    )
    avro_schema: str | None = setting(
        None,
        "The Avro schema that values are written with: JSON, or the path of a file.",
        Option(SHAPE, "FILE"),
    )
    avro_prefix: str = setting(
        "none",
        "What precedes each Avro value: none, confluent (5 bytes) or single-object (10 bytes).",
        Option(SHAPE, "KIND"),
        choices=("none", "confluent", "single-object"),
    )
    csv_delimiter: str = setting(
        ",", "The character between CSV fields.", Option(SHAPE, "CHARACTER", reads="escapes")
    )
    csv_quote: str = setting(
        '"', "The character around quoted CSV fields; empty for none.", Option(SHAPE, "CHARACTER")
    )
    partition_by: Sequence[str] = setting(
        (),
        "Partition columns of the table; 'date(_timestamp) AS day' adds one.",
        Option(TABLE, "COLUMN", help="Partition the table's files by this column; repeat it for more."),
    )
    add_columns: bool = setting(False, "Add the columns that an existing table lacks.", Option(TABLE))

    def __post_init__(self) -> None:
        for each in declared(type(self)):
            self._check(each)
        if self.value_format is None:
            object.__setattr__(self, "value_format", self._implied())
        self._check_format()
        self._check_csv()
        if any(not check.strip() for check in self.checks):
            raise ConfigError("checks has an empty check: leave it out", setting="checks")
        if self.sql is not None and not self.sql.strip().rstrip(";"):
            raise ConfigError("sql is empty: leave it out", setting="sql")

    def _check(self, declaration: Setting) -> None:
        name, value = declaration.name, getattr(self, declaration.name)
        problem = ""
        if declaration.type == "Sequence[str]":
            if isinstance(value, str):
                problem = f"one text: it must be a list, as in {name}=[{value!r}]"
            object.__setattr__(self, name, tuple(value))
        elif value is None:
            return
        elif declaration.choices and value not in declaration.choices:
            near = nearest(value, declaration.choices, cutoff=0.0)[0]
            problem = f"{value!r}: it is one of {', '.join(declaration.choices)}; {near}?"
        elif declaration.positive and value <= 0:
            problem = f"{value}: it must be positive"
        elif declaration.not_empty and not value:
            problem = "empty: give it a name"
        if problem:
            raise ConfigError(f"{name} is {problem}", setting=name)

    def _implied(self) -> str:
        if self.avro_schema is not None:
            return "avro"
        return RAW if self.schema is None else "json"

    def _check_format(self) -> None:
        name = self.format
        if name in ("json", "csv") and not (self.schema or "").strip():
            raise ConfigError(
                f"value_format={name} needs a schema, such as 'id LONG, price DOUBLE'", setting="value_format"
            )
        if name == RAW and self.schema is not None:
            raise ConfigError(
                "schema is not for value_format=raw: choose json, avro or csv", setting="schema"
            )
        if (name == "avro") != (self.avro_schema is not None):
            raise ConfigError(
                "avro_schema and value_format=avro go together: give both, or neither", setting="avro_schema"
            )
        if self.avro_prefix != "none" and name != "avro":
            raise ConfigError(
                f"avro_prefix is not for value_format={name}: give an avro_schema as well",
                setting="avro_prefix",
            )

    def _check_csv(self) -> None:
        delimiter, quote = self.csv_delimiter, self.csv_quote
        if len(delimiter.encode()) != 1 or delimiter in "\r\n":
            raise ConfigError(
                f"csv_delimiter is {delimiter!r}: it must be one ASCII character", setting="csv_delimiter"
            )
        if quote and (len(quote.encode()) != 1 or quote in "\r\n"):
            raise ConfigError(
                f"csv_quote is {quote!r}: it must be one ASCII character, or empty", setting="csv_quote"
            )
        if quote == delimiter:
            raise ConfigError(
                f"csv_quote is {quote!r}, as is the delimiter: choose another character", setting="csv_quote"
            )
        if (delimiter, quote) != (",", '"') and self.format != "csv":
            name = "csv_delimiter" if delimiter != "," else "csv_quote"
            raise ConfigError(
                f"{name} is not for value_format={self.format}: leave it out, or choose csv", setting=name
            )

    @property
    def format(self) -> str:
        assert self.value_format is not None
        return self.value_format

    @property
    def is_raw(self) -> bool:
        return self.format == RAW

    @property
    def can_reject(self) -> bool:
        """Whether there can be rejected rows at all."""
        return not self.is_raw or bool(self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings(Shaping):
    """All that ``Load`` takes."""

    spark: SparkSession | Callable[[], SparkSession] = field(
        kw_only=False,
        metadata=about("A session, or a function that makes one, which is called while the group is joined."),
    )
    topics: Sequence[str] = field(
        default=(),
        metadata=about(
            "The topics to load.", Option(metavar="TOPIC", names=("TOPIC",), help="The topics to load.")
        ),
    )
    pattern: str | None = setting(
        None,
        "A regular expression instead of `topics`: all whose whole name matches are loaded, also new ones.",
        Option(
            metavar="REGEX",
            names=("--pattern",),
            help="Instead of TOPIC: all topics whose whole name matches, also new ones.",
        ),
        not_empty=True,
    )
    group_id: str = field(
        metadata=about(
            "The consumer group of the load.",
            Option("", "GROUP", ("--group", "-g")),
            not_empty=True,
            client_setting="group.id",
        )
    )
    sink: Sink = field(
        metadata=about(
            "Where rows, rejected rows and progress are written.",
            Option("", "SINK", ("--to",)),
        )
    )
    bootstrap_servers: str | Sequence[str] = setting(
        "localhost:9092",
        "The brokers to connect to first.",
        Option(names=("--bootstrap-servers",)),
        client_setting="bootstrap.servers",
    )
    max_records: int | None = setting(
        None, "Load at most this many records in a cycle.", Option(CYCLES, "N"), positive=True
    )
    max_bytes: int | None = setting(
        None, "Load about this many bytes in a cycle.", Option(CYCLES, "SIZE", reads="size"), positive=True
    )
    max_seconds: float | None = setting(
        None, "Let a cycle take about this long.", Option(CYCLES, "SECONDS"), positive=True
    )
    target_file_size: int | None = setting(
        None,
        "How large the files become that `compact` makes, in bytes; 128 MiB by default.",
        Option(TABLE, "SIZE", help="How large files should be, such as 128MiB.", reads="size"),
        positive=True,
    )
    compact: bool = setting(False, "Join small files after loading, in sinks with files.", Option(TABLE))
    starting: Literal["earliest", "latest"] = setting(
        "earliest",
        "Where to start when nothing was loaded yet: earliest or latest.",
        Option(START, "WHERE"),
        choices=("earliest", "latest"),
        client_setting="auto.offset.reset",
    )
    fail_on_data_loss: bool = setting(
        True,
        "Fail when records were deleted or skipped before they were loaded; else record them as lost.",
        Option(
            START,
            "",
            ("--accept-data-loss",),
            "Continue when records were deleted or skipped before they were loaded; record them as lost.",
            negates=True,
        ),
    )
    on_recreated: Literal["fail", "append"] = setting(
        "fail",
        "What to do with a topic that was deleted and recreated: fail, or append its records.",
        Option(START, "WHAT"),
        choices=("fail", "append"),
    )
    instance_id: str | None = setting(
        None,
        "Makes the load a static member: a restart within the session moves no partition.",
        Option(SPARK, "ID"),
        not_empty=True,
        client_setting="group.instance.id",
    )
    properties: Mapping[str, object] | None = setting(
        None,
        "Settings of the load's consumers, under Kafka's names.",
        Option(names=("--property",)),
        secret=True,
    )
    observer: Observer | None = setting(  # noqa: RUF009 - a field
        None, "Called as observer(point, detail) at each `Point` of a cycle; its errors end the load."
    )

    def __post_init__(self) -> None:
        Shaping.__post_init__(self)  # super() does not work in a class with slots
        if self.topics and self.pattern is not None:
            raise ConfigError("topics and pattern are both given: leave one out", setting="pattern")
        if not self.topics and self.pattern is None:
            raise ConfigError("topics is empty: name at least one, or give a pattern", setting="topics")
        self._check_pattern()
        object.__setattr__(self, "topics", tuple(dict.fromkeys(self.topics)))
        if self.target_file_size is not None and not self.compact:
            raise ConfigError(
                "target_file_size is how large files become that are joined, so it needs compact=True: how "
                "large files are written is a setting of the sink, as in DeltaSink(…, target_file_size=…)",
                setting="target_file_size",
            )

    def _check_pattern(self) -> None:
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise ConfigError(
                f"pattern {self.pattern!r} is not a regular expression: {error}", setting="pattern"
            ) from error

    def loads(self, topic: str) -> bool:
        """Whether a topic of this name is loaded."""
        return topic in self.topics or (
            self.pattern is not None and re.fullmatch(self.pattern, topic) is not None
        )

    @property
    def servers(self) -> str:
        """The brokers as Kafka writes them: with commas."""
        given = self.bootstrap_servers
        return given if isinstance(given, str) else ",".join(given)

    @property
    def shaping(self) -> Shaping:
        """The part that travels to the tasks."""
        return Shaping(**{each.name: getattr(self, each.name) for each in fields(Shaping)})


OPTIONS: Final = options(LoadSettings)
"""The option of each setting that has one: ``max_records`` is ``--max-records``."""
CLIENT_SETTINGS: Final = {
    each.client_setting: each.name for each in declared(LoadSettings) if each.client_setting
}
"""Consumer settings, under Kafka's names, that are settings of a load."""
CLIENT_OPTIONS: Final = {kafka.replace(".", "_"): OPTIONS[name] for kafka, name in CLIENT_SETTINGS.items()}
"""Consumer settings, under Python's names, that are options of the command."""
