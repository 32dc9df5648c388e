"""``millstream load``: topics into tables, and how such a load stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from millstream.cli import options
from millstream.cli.outcome import UsageError
from millstream.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from millstream.cli.loading import LoadOrder
    from millstream.spark.load.status import LoadStatus

_SHAPE = "What rows are made of"
_TABLE = "The table"
_CYCLES = "Cycles"
_START = "Where it starts"
_SPARK = "Spark and the group"

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="What to load.")]
Group = Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The consumer group of the load.")]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="SINK", help="delta:DIR, postgresql://user@host/database?table=NAME, or topic:NAME."
    ),
]
ValueFormat = Annotated[
    str | None,
    typer.Option(
        "--value-format",
        metavar="FORMAT",
        help="raw, json, avro or csv.",
        show_default="json with --schema, avro with --avro-schema, else raw",
        rich_help_panel=_SHAPE,
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="COLUMNS",
        help="The columns, such as 'id LONG, price DOUBLE', or @FILE.",
        rich_help_panel=_SHAPE,
    ),
]
Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="CONDITION",
        help="Reject rows for which this is not true; repeat it for more.",
        rich_help_panel=_SHAPE,
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        metavar="QUERY",
        help="A query over the good rows, FROM batch; or @FILE.",
        rich_help_panel=_SHAPE,
    ),
]
NoHeaders = Annotated[
    bool, typer.Option("--no-headers", metavar="", help="Leave headers out.", rich_help_panel=_SHAPE)
]
AvroSchema = Annotated[
    str | None,
    typer.Option(
        "--avro-schema",
        metavar="FILE",
        help="The schema that values are written with.",
        rich_help_panel=_SHAPE,
    ),
]
AvroPrefix = Annotated[
    str,
    typer.Option(
        "--avro-prefix",
        metavar="KIND",
        help="What stands before each value: none, confluent or single-object.",
        rich_help_panel=_SHAPE,
    ),
]
CsvDelimiter = Annotated[
    str,
    typer.Option(
        "--csv-delimiter", metavar="CHARACTER", help="What separates fields.", rich_help_panel=_SHAPE
    ),
]
CsvQuote = Annotated[
    str,
    typer.Option(
        "--csv-quote", metavar="CHARACTER", help="What fields may stand in.", rich_help_panel=_SHAPE
    ),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="Divide the table's files by this; repeat it for more.",
        rich_help_panel=_TABLE,
    ),
]
AddColumns = Annotated[
    bool,
    typer.Option(
        "--add-columns", metavar="", help="Add columns that the table lacks.", rich_help_panel=_TABLE
    ),
]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark to work on: local[*], spark://host:7077, …",
        rich_help_panel=_SPARK,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="NAME=VALUE", help="A setting of Spark; repeat it for more.", rich_help_panel=_SPARK
    ),
]


class LoadGroup(TyperGroup):
    """Commands about loads. What is no name of one is a topic: ``load orders`` is ``load run orders``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {"--help", "-h", *self.commands}
        if args and args[0] not in names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


def load() -> None:
    """Load topics into tables through Spark, exactly once; look at loads and at what they rejected.

    Without a command's name this is millstream load run.

    [bold]Examples[/bold]

      millstream load orders --group orders-lake --to delta:lake/orders --once
      millstream load status orders --group orders-lake --to delta:lake/orders
      millstream load rejected --to delta:lake/orders
    """


def run(
    topics: Topics,
    group: Group,
    to: To,
    once: Annotated[
        bool,
        typer.Option(
            "--once", metavar="", help="Load up to the present end, and leave.", rich_help_panel=_CYCLES
        ),
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="SECONDS",
            min=0,
            help="Without --once: how often to look for more; 0: always.",
            rich_help_panel=_CYCLES,
        ),
    ] = 10.0,
    max_records: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="At most so many records a cycle.", rich_help_panel=_CYCLES),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="About so many bytes a cycle: 64MiB.", rich_help_panel=_CYCLES),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.001, help="About so long a cycle.", rich_help_panel=_CYCLES),
    ] = None,
    value_format: ValueFormat = None,
    schema: Schema = None,
    checks: Checks = None,
    sql: Sql = None,
    no_headers: NoHeaders = False,
    avro_schema: AvroSchema = None,
    avro_prefix: AvroPrefix = "none",
    csv_delimiter: CsvDelimiter = ",",
    csv_quote: CsvQuote = '"',
    partition_by: PartitionBy = None,
    add_columns: AddColumns = False,
    target_file_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="How large files should be: 128MiB.", rich_help_panel=_TABLE),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option("--compact", metavar="", help="Join small files after loading.", rich_help_panel=_TABLE),
    ] = False,
    starting: Annotated[
        str,
        typer.Option(
            "--starting",
            metavar="WHERE",
            help="earliest or latest, where nothing was loaded yet.",
            rich_help_panel=_START,
        ),
    ] = "earliest",
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            metavar="",
            help="Record what retention took, and go on.",
            rich_help_panel=_START,
        ),
    ] = False,
    on_recreated: Annotated[
        str,
        typer.Option(
            "--on-recreated",
            metavar="WHAT",
            help="fail, or append: for a topic that was deleted and made anew.",
            rich_help_panel=_START,
        ),
    ] = "fail",
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id",
            metavar="ID",
            help="A static member: a restart moves no partition.",
            rich_help_panel=_SPARK,
        ),
    ] = None,
    master: Master = "local[*]",
    conf: Conf = None,
    properties: options.Properties = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Load topics into a table, exactly once, as a member of a consumer group.

    The table is made when it is not there. Running it again goes on where the table stands, after whatever;
    several may run at a time with one group, and share the partitions. Ctrl-C ends it cleanly.

    [bold]Examples[/bold]

      millstream load orders --group orders-lake --to delta:lake/orders --once
      millstream load orders -g lake --to delta:lake/o --schema 'id LONG, price DOUBLE' --check 'price > 0'
      millstream load orders -g pg --to 'postgresql://me@db/shop?table=orders' --schema 'id LONG' --every 30
      millstream load people -g p --to delta:lake/p --schema 'c STRING' --sql 'SELECT DISTINCT c FROM batch'
    """
    from millstream.cli.loading import LoadOrder, run_load

    order = LoadOrder(
        topics=topics,
        group=group,
        to=to,
        servers=servers,
        properties=properties or (),
        master=master,
        conf=conf or (),
        value_format=value_format,
        schema=schema,
        checks=checks or (),
        sql=sql,
        headers=not no_headers,
        avro_schema=avro_schema,
        avro_prefix=avro_prefix,
        csv_delimiter=csv_delimiter,
        csv_quote=csv_quote,
        partition_by=partition_by or (),
        add_columns=add_columns,
        instance_id=instance_id,
        starting=starting,
        accept_data_loss=accept_data_loss,
        on_recreated=on_recreated,
        max_records=max_records,
        max_bytes=max_bytes,
        max_seconds=max_seconds,
        target_file_size=target_file_size,
        compact=compact,
    )
    return run_load(order, None if once else every, as_json=as_json)


def status(
    topics: Topics,
    group: Group,
    to: To,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Compare what is in the table with the group's offsets and the ends of the logs.

    The lag is how many offsets are not in the table yet. Ranges that will never be there, as retention took
    them or a reset passed over them, are listed.

    [bold]Examples[/bold]

      millstream load status orders --group orders-lake --to delta:lake/orders
      millstream load status orders --group orders-lake --to delta:lake/orders --json | jq .lag
    """
    from millstream.cli.loading import read_status

    found = read_status(servers, to, group, topics)
    if as_json:
        print_json(found.as_dict())
    else:
        _print_status(found)


def _print_status(found: LoadStatus) -> None:
    columns = ("topic", "partition", "loaded", "committed", "end", "lag", "note")
    rows = [
        (*one.partition, one.loaded, one.committed, one.log_end, one.lag, one.note)
        for one in found.partitions
    ]
    print_table(columns, rows)
    if found.lost:
        print()
        print_table(
            ("lost topic", "partition", "start", "end", "reason", "noticed"),
            [
                (one.topic, one.partition, one.start, one.end, str(one.reason), one.noticed_at.isoformat())
                for one in found.lost
            ],
        )


def rejected(
    to: To,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Only the newest so many.")
    ] = 100,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show the rows that a load has rejected, each with the reason, newest last.

    [bold]Examples[/bold]

      millstream load rejected --to delta:lake/orders
      millstream load rejected --to delta:lake/orders --limit 5 --json | jq .[].reason
    """
    from millstream.cli.loading import read_rejected

    rows = read_rejected(servers, to, limit)
    if as_json:
        print_json(rows)
    elif not rows:
        say("nothing was rejected")
    else:
        columns = ("topic", "partition", "offset", "reason", "value")
        print_table(columns, [tuple(row[name] for name in columns) for row in rows])


def replay(
    to: To,
    group: Group,
    value_format: ValueFormat = None,
    schema: Schema = None,
    checks: Checks = None,
    sql: Sql = None,
    avro_schema: AvroSchema = None,
    avro_prefix: AvroPrefix = "none",
    csv_delimiter: CsvDelimiter = ",",
    csv_quote: CsvQuote = '"',
    partition_by: PartitionBy = None,
    add_columns: AddColumns = False,
    master: Master = "local[*]",
    conf: Conf = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Feed rejected rows back, after a fix of the schema or the checks.

    Those that are good now move to the table; the others stay, and it says what is wrong with them now. A
    table that is partitioned by a column made of another needs --partition-by as it was given to the load.

    [bold]Examples[/bold]

      millstream load replay -g lake --to delta:lake/orders --schema 'id LONG' --check 'id >= 0'
      millstream load replay -g lake --to delta:lake/orders --schema 'id LONG, price STRING'
    """
    from millstream.cli.loading import LoadOrder, run_replay

    order = LoadOrder(
        topics=(),
        group=group,
        to=to,
        servers=servers,
        master=master,
        conf=conf or (),
        value_format=value_format,
        schema=schema,
        checks=checks or (),
        sql=sql,
        avro_schema=avro_schema,
        avro_prefix=avro_prefix,
        csv_delimiter=csv_delimiter,
        csv_quote=csv_quote,
        partition_by=partition_by or (),
        add_columns=add_columns,
    )
    _require_shape(order)
    run_replay(order, as_json=as_json)


def _require_shape(order: LoadOrder) -> None:
    if order.schema is None and order.avro_schema is None:
        raise UsageError("replay needs the schema that rows shall have now: give --schema (or --avro-schema)")
