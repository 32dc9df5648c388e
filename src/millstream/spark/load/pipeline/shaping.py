"""What a load makes of a record: how its value is read, which rows are good, what the table looks like.

A ``Shaping`` is what the user asked for, as plain values that travel to the tasks; ``Pipeline`` is what comes
of it. Everything that can be known to be wrong without Spark is said when the shaping is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import ConfigError
from millstream.suggestions import nearest

RAW: Final = "raw"
FORMATS: Final = (RAW, "json", "avro", "csv")
AVRO_PREFIXES: Final = ("none", "confluent", "single-object")


@dataclass(frozen=True, slots=True)
class Shaping:
    """How records become rows. Lists are accepted where tuples are named."""

    value_format: str | None = None
    """raw, json, avro or csv; None means json where there is a schema, else raw."""
    schema: str | None = None
    """The columns in Spark's DDL: ``id LONG NOT NULL, price DOUBLE``. Avro can do without."""
    checks: Sequence[str] = ()
    """SQL conditions; a row for which one is not true is rejected."""
    sql: str | None = None
    """A query over the good rows, which it finds as the view ``batch``."""
    topics: Sequence[str] = ()
    """Where there is one topic, with a plain name, ``sql`` finds the rows under this name, too."""
    headers: bool = True
    """Whether headers are read: for the raw table, and for rejected rows."""
    partition_by: Sequence[str] = ()
    """Columns of the table, or ``date(_timestamp) AS day``: see ``pipeline.partitioning``."""
    add_columns: bool = False
    """Whether an existing table may be given the columns that it lacks."""
    avro_schema: str | None = None
    """The schema that values were written with: JSON, or the path of a file that holds it."""
    avro_prefix: str = "none"
    """What stands before each Avro value: none, confluent (5 bytes), single-object (10 bytes)."""
    csv_delimiter: str = ","
    csv_quote: str = '"'

    def __post_init__(self) -> None:
        for name in ("checks", "partition_by", "topics"):
            given = getattr(self, name)
            if isinstance(given, str):
                raise ConfigError(f"{name} is one text: it must be a list, as in {name}=[{given!r}]")
            object.__setattr__(self, name, tuple(given))
        if self.value_format is None:
            object.__setattr__(self, "value_format", self._implied())
        self._check_format()
        self._check_csv()
        if any(not check.strip() for check in self.checks):
            raise ConfigError("checks has an empty check: leave it out")
        if self.sql is not None and not self.sql.strip().rstrip(";"):
            raise ConfigError("sql is empty: leave it out")

    def _implied(self) -> str:
        if self.avro_schema is not None:
            return "avro"
        return RAW if self.schema is None else "json"

    def _check_format(self) -> None:
        name = self.format
        if name not in FORMATS:
            near = nearest(name, FORMATS, cutoff=0.0)[0]
            raise ConfigError(f"value_format is {name!r}: it is one of {', '.join(FORMATS)}; {near}?")
        if name in ("json", "csv") and not (self.schema or "").strip():
            raise ConfigError(f"value_format={name} needs a schema, such as 'id LONG, price DOUBLE'")
        if name == RAW and self.schema is not None:
            raise ConfigError("a schema makes no sense with value_format=raw: choose json, avro or csv")
        if (name == "avro") != (self.avro_schema is not None):
            raise ConfigError("avro_schema and value_format=avro go together: give both, or neither")
        if self.avro_prefix not in AVRO_PREFIXES:
            raise ConfigError(f"avro_prefix is {self.avro_prefix!r}: it is one of {', '.join(AVRO_PREFIXES)}")
        if self.avro_prefix != "none" and name != "avro":
            raise ConfigError(f"avro_prefix says nothing of value_format={name}: give an avro_schema as well")

    def _check_csv(self) -> None:
        if len(self.csv_delimiter.encode()) != 1 or self.csv_delimiter in "\r\n":
            raise ConfigError(f"csv_delimiter is {self.csv_delimiter!r}: it must be one character of ASCII")
        if self.csv_quote and (len(self.csv_quote.encode()) != 1 or self.csv_quote in "\r\n"):
            raise ConfigError(f"csv_quote is {self.csv_quote!r}: it must be one character of ASCII, or empty")
        if self.csv_quote == self.csv_delimiter:
            raise ConfigError("csv_quote and csv_delimiter are the same: nobody could tell them apart")
        if (self.csv_delimiter, self.csv_quote) != (",", '"') and self.format != "csv":
            raise ConfigError(
                f"csv_delimiter and csv_quote say nothing of value_format={self.format}: leave them out, or "
                "set value_format=csv"
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
