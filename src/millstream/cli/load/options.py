"""The options that the commands about loads share, and the panels of their help."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.cli import completion
from millstream.spark.sinks.kinds import usages

SHAPE: Final = "What rows are made of"
TABLE: Final = "The table"
CYCLES: Final = "Cycles"
START: Final = "Where it starts"
SPARK: Final = "Spark and the group"

Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="What is loaded.", autocompletion=completion.topics)
]
Group = Annotated[
    str,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="The consumer group of the load.",
        autocompletion=completion.groups,
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="SINK",
        help=f"{usages()}.",
        autocompletion=completion.sinks,
    ),
]
ValueFormat = Annotated[
    str | None,
    typer.Option(
        "--value-format",
        metavar="FORMAT",
        help="raw, json, avro or csv.",
        show_default="json with --schema, avro with --avro-schema, else raw",
        rich_help_panel=SHAPE,
        autocompletion=completion.words("raw", "json", "avro", "csv"),
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="COLUMNS",
        help="The columns, such as 'id LONG, price DOUBLE', or @FILE.",
        rich_help_panel=SHAPE,
    ),
]
Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="CONDITION",
        help="Reject rows for which this is not true; repeat it for more.",
        rich_help_panel=SHAPE,
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="QUERY",
        help="A query over the good rows, FROM batch; or @FILE.",
        rich_help_panel=SHAPE,
    ),
]
NoHeaders = Annotated[
    bool, typer.Option("--no-headers", metavar="", help="Leave headers out.", rich_help_panel=SHAPE)
]
AvroSchema = Annotated[
    str | None,
    typer.Option(
        "--avro-schema",
        metavar="FILE",
        help="The schema that values are written with.",
        rich_help_panel=SHAPE,
    ),
]
AvroPrefix = Annotated[
    str,
    typer.Option(
        "--avro-prefix",
        metavar="KIND",
        help="What stands before each value: none, confluent or single-object.",
        rich_help_panel=SHAPE,
        autocompletion=completion.words("none", "confluent", "single-object"),
    ),
]
CsvDelimiter = Annotated[
    str,
    typer.Option(
        "--csv-delimiter", metavar="CHARACTER", help="What separates fields.", rich_help_panel=SHAPE
    ),
]
CsvQuote = Annotated[
    str,
    typer.Option("--csv-quote", metavar="CHARACTER", help="What fields may stand in.", rich_help_panel=SHAPE),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="Divide the table's files by this; repeat it for more.",
        rich_help_panel=TABLE,
    ),
]
AddColumns = Annotated[
    bool,
    typer.Option(
        "--add-columns", metavar="", help="Add columns that the table lacks.", rich_help_panel=TABLE
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark to work on: local[*], spark://host:7077, …",
        rich_help_panel=SPARK,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark; repeat it for more.", rich_help_panel=SPARK
    ),
]
