"""The options of ``millstream scan``: which records are read, how they are decoded, and where rows go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from millstream.cli import completion
from millstream.cli.options import repeated

_POSITION: Final = "an offset, -N (before the end), a time, or an age such as '1 hour ago'"
_PANEL: Final = "Formats"
_VALUES: Final = "bytes, string, json, csv, avro, or a number: short, int, long, float, double"
PRINTED: Final = ("table", "json", "csv")
FILES: Final = ("parquet", "csv", "json")


def _position(name: str, help: str) -> Any:
    complete = completion.words("earliest", "latest", "committed", "offset:", "time:")
    return typer.Option(name, metavar="POSITION", help=help, autocompletion=complete)


def _option(*names: str, metavar: str, help: str, known: tuple[str, ...] = ()) -> Any:
    complete = completion.words(*known)
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=_PANEL, autocompletion=complete)


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """Which records are read."""

    start: Annotated[str, _position("--from", f"Start at earliest, latest, committed, {_POSITION}.")] = (
        "earliest"
    )
    end: Annotated[
        str, _position("--until", "End before this position, as for --from; by default at the end.")
    ] = "latest"
    partitions: Annotated[
        tuple[int, ...], repeated("--partition", "-p", metavar="N", min=0, help="Only this partition")
    ] = ()
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="The group whose committed offsets count; nothing is committed.",
            autocompletion=completion.groups,
        ),
    ] = None
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Read what is left where retention deleted records.")
    ] = False


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which rows and columns are kept, and where they go."""

    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT:FILE",
            help="Write a file: parquet:FILE, csv:FILE or json:FILE; - is standard output.",
            autocompletion=completion.words(*(f"{each}:" for each in FILES)),
        ),
    ] = None
    select: Annotated[
        str | None,
        typer.Option("--select", metavar="COLUMNS", help="Only these columns, such as 'id, a.b AS b'."),
    ] = None
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="CONDITION", help="Only rows for which this is true: price > 10."),
    ] = None
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=0, help="End after N rows.")
    ] = None
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"How rows are printed: {', '.join(PRINTED)}.",
            autocompletion=completion.words(*PRINTED),
        ),
    ] = "table"


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How keys and values are decoded."""

    value_format: Annotated[
        str,
        _option(
            "--value-format", metavar="FORMAT", help=f"{_VALUES}.", known=("json", "string", "csv", "avro")
        ),
    ] = "bytes"
    key_format: Annotated[
        str, _option("--key-format", metavar="FORMAT", help="As for values, except json, csv and avro.")
    ] = "bytes"
    schema: Annotated[
        str | None,
        _option("--schema", metavar="COLUMNS", help="The columns of values: 'id LONG, price DOUBLE'."),
    ] = None
    infer: Annotated[
        int,
        typer.Option(
            "--infer",
            metavar="N",
            min=1,
            help="Infer the columns of JSON from N records, where there is no --schema.",
            rich_help_panel=_PANEL,
        ),
    ] = 1_000
    avro_schema: Annotated[
        str | None,
        _option("--avro-schema", metavar="FILE", help="The schema that Avro values are written with."),
    ] = None
    avro_prefix: Annotated[
        str,
        _option(
            "--avro-prefix",
            metavar="KIND",
            help="What precedes Avro values: none, confluent or single-object.",
            known=("none", "confluent", "single-object"),
        ),
    ] = "none"
    csv_delimiter: Annotated[
        str, _option("--csv-delimiter", metavar="CHARACTER", help="The character between CSV fields.")
    ] = ","
    headers: Annotated[bool, typer.Option("--headers", help="Read headers, too.", rich_help_panel=_PANEL)] = (
        False
    )
    bad_values: Annotated[
        str,
        _option(
            "--bad-values",
            metavar="WHAT",
            help="fail at a value that cannot be decoded, or read it as null.",
            known=("fail", "null"),
        ),
    ] = "fail"
