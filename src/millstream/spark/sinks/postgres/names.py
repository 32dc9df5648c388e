"""Addresses and table names of PostgreSQL, as users write them and as SQL, and the condition for a row range.

An address is a libpq URL (``postgresql://user@host:port/database?sslmode=require``) with one more parameter:
``table``. A table is ``orders`` or ``sales.orders``; a name with a dot or a quote in it is in double quotes,
as in SQL (``sales."odd.name"``). Names are case-sensitive: nothing is folded to lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError, sql
from psycopg.conninfo import conninfo_to_dict

from millstream.errors import ConfigError
from millstream.spark.sinks.base import label_column

MOST_BYTES: Final = 63
"""The longest name. PostgreSQL truncates longer ones without an error: two tables could become one."""
REJECTED: Final = "_rejected"
LOST: Final = "_lost"
PROGRESS: Final = "millstream_progress"
_SPELLING: Final = re.compile(r'(?:(?P<schema>"(?:[^"]|"")+"|[^".]+)\.)?(?P<table>"(?:[^"]|"")+"|[^".]+)')


def placed(name: sql.Identifier) -> sql.SQL:
    """A name for a statement with parameters, in which a percent sign must be escaped."""
    return sql.SQL(name.as_string(None).replace("%", "%%"))


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one partition with offsets ``[start, end)``; with a label, only those that have it."""

    topic: str
    partition: int
    start: int
    end: int
    label: str | None


def in_range(positions: tuple[str, str, str], rows: RowRange) -> tuple[sql.Composed, list[object]]:
    """The SQL condition for a range of rows, and its values."""
    condition = sql.SQL("{0} = %s AND {1} = %s AND {2} >= %s AND {2} < %s").format(
        *map(sql.Identifier, positions)
    )
    values: list[object] = [rows.topic, rows.partition, rows.start, rows.end]
    if rows.label is not None:  # rows of earlier topics of this name do not count
        condition += sql.SQL(" AND {} = %s").format(sql.Identifier(label_column(positions)))
        values.append(rows.label)
    return condition, values


@dataclass(frozen=True, slots=True)
class TableName:
    """A table; without a schema, in the first schema of the user's search path."""

    table: str
    schema: str | None = None

    def __post_init__(self) -> None:
        for name, most in ((self.table, MOST_BYTES - len(REJECTED)), (self.schema or "", MOST_BYTES)):
            if len(name.encode()) > most or "\0" in name:
                raise ConfigError(
                    f"{name!r} cannot be the name of a table or schema here: at most {most} bytes, no NUL "
                    f"(tables beside it are called NAME{REJECTED}, NAME{LOST}); choose another with ?table="
                )
        if self.table == PROGRESS:
            raise ConfigError(
                f"the table {PROGRESS} holds the progress of loads: choose another with ?table="
            )

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse what a user writes: ``orders``, ``sales.orders``, ``sales."odd.name"``."""
        found = _SPELLING.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is not the name of a table: write orders, sales.orders, or "
                f'"odd.name" in double quotes where a name has a dot or a quote in it'
            )
        return cls(_unquoted(found["table"]), _unquoted(found["schema"]) if found["schema"] else None)

    def __str__(self) -> str:
        parts = [self.table] if self.schema is None else [self.schema, self.table]
        return ".".join(map(_spelled, parts))

    def beside(self, name: str) -> sql.Identifier:
        """A table in the same schema."""
        return sql.Identifier(name) if self.schema is None else sql.Identifier(self.schema, name)

    @property
    def rows(self) -> sql.Identifier:
        return self.beside(self.table)

    @property
    def rejected(self) -> sql.Identifier:
        return self.beside(self.table + REJECTED)

    @property
    def lost(self) -> sql.Identifier:
        return self.beside(self.table + LOST)

    @property
    def progress(self) -> sql.Identifier:
        return self.beside(PROGRESS)

    def within(self, schema: str) -> TableName:
        return replace(self, schema=schema)


@dataclass(frozen=True, slots=True, repr=False)
class PostgresAddress:
    """A libpq URL of a database, and a table in it. Its repr shows no password."""

    url: str
    table: TableName

    @classmethod
    def parse(cls, url: str, table: str | None = None) -> PostgresAddress:
        """Parse an address; the table is given as ``table`` or in the URL, once."""
        rest, named = _split_table(url)
        if named is not None and table is not None and named != table:
            raise ConfigError(f"the table is {named} in the address and {table} as table=: give it once")
        spelled = named if table is None else table
        if not spelled:
            raise ConfigError(f"which table? Give it as {_shown(rest)}?table=NAME")
        _check(rest)
        return cls(rest, TableName.parse(spelled))

    @property
    def name(self) -> str:
        """The address without user, password and connection parameters."""
        return f"{_shown(self.url)}?table={quote(str(self.table), safe='._-')}"

    def __repr__(self) -> str:
        return f"PostgresAddress({self.name})"


def with_default_table(url: str, topic: str) -> str:
    """The address with the topic's name as its table, unless it names one."""
    rest, named = _split_table(url)
    if named is not None:
        return url
    joint = "&" if urlsplit(rest).query else "?"
    return f"{rest}{joint}{urlencode({'table': _spelled(topic)})}"


def _split_table(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigError("a PostgreSQL address starts with postgresql://")
    parameters = parse_qsl(parts.query, keep_blank_values=True)
    tables = [value for key, value in parameters if key == "table"]
    if len(tables) > 1:
        raise ConfigError("the address names more than one table")
    others = [pair for pair in parts.query.split("&") if pair and not pair.startswith("table=")]
    rest = urlunsplit(parts._replace(query="&".join(others), scheme="postgresql"))
    if parts.netloc == "" and rest.startswith("postgresql:/") and not rest.startswith("postgresql://"):
        rest = rest.replace("postgresql:", "postgresql://", 1)  # urlunsplit drops an empty host
    return rest, tables[0] if tables else None


def _check(url: str) -> None:
    try:
        conninfo_to_dict(url)
    except ProgrammingError as error:
        raise ConfigError(f"not a PostgreSQL address: {str(error).strip()}") from None


def _shown(url: str) -> str:
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    host = given.get("host") or unquote(parts.netloc.rpartition("@")[2])
    database = given.get("dbname") or unquote(parts.path.lstrip("/"))
    return f"postgresql://{quote(host, safe=':[],.-_')}/{quote(database, safe='._-')}"


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _spelled(name: str) -> str:
    plain = re.fullmatch(r'[^".]+', name)
    return name if plain else '"{}"'.format(name.replace('"', '""'))
