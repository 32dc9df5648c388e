"""``millstream load``: topics into tables, and how such a load stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from millstream.cli import completion, options
from millstream.cli.errors.misuse import sentence
from millstream.cli.errors.typos import typo_of
from millstream.cli.load import options as load_options
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_json, print_table, say

if TYPE_CHECKING:
    from millstream.cli.load.work import LoadOrder

_OTHERS = ("status", "rejected", "replay")
_TAKEN_FOR_A_TOPIC = "millstream.taken_for_a_topic"


class LoadGroup(TyperGroup):
    """Commands about loads. What is no name of one is a topic: ``load orders`` is ``load run orders``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names = {"--help", "-h", *self.commands}
        if args and args[0] not in names:
            ctx.meta[_TAKEN_FOR_A_TOPIC] = args[0]
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. What cannot be run with these options may have been meant for another command."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            near = near_command(ctx.meta.get(_TAKEN_FOR_A_TOPIC, ""))
            if near is None:
                raise
            raise UsageError(f"{sentence(error)}; or did you mean 'millstream load {near}'?") from error

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands, and what may follow instead of one: topics, and the options of ``run``."""
        found = super().shell_complete(ctx, incomplete)
        run = self.commands["run"]
        inner = run.make_context("run", [], parent=ctx, resilient_parsing=True)
        return found + run.params[0].shell_complete(inner, incomplete) + run.shell_complete(inner, incomplete)


def near_command(word: str) -> str | None:
    """The command about loads that a supposed topic may have been meant to be."""
    others = [name for name in _OTHERS if len(word) > 3 and name.startswith(word)]
    return others[0] if others else typo_of(word, _OTHERS)


def load() -> None:
    """Load topics into tables through Spark, exactly once; look at loads and at what they rejected.

    Without a command's name this is millstream load run.

    [bold]Examples[/bold]

      millstream load orders -g lake --to delta:orders --schema 'id LONG' --once
      millstream load status orders -g lake --to delta:orders
      millstream load rejected --to delta:orders
    """


def run(
    topics: load_options.Topics,
    group: load_options.Group,
    to: load_options.To,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            metavar="",
            help="Load up to the present end, and leave.",
            rich_help_panel=load_options.CYCLES,
        ),
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="SECONDS",
            min=0,
            help="Without --once: how often to look for more; 0: always.",
            rich_help_panel=load_options.CYCLES,
        ),
    ] = 10.0,
    max_records: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="At most so many records a cycle.", rich_help_panel=load_options.CYCLES
        ),
    ] = None,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="About so many bytes a cycle, such as 64MiB.",
            rich_help_panel=load_options.CYCLES,
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.001, help="About so long a cycle.", rich_help_panel=load_options.CYCLES
        ),
    ] = None,
    value_format: load_options.ValueFormat = None,
    schema: load_options.Schema = None,
    checks: load_options.Checks = None,
    sql: load_options.Sql = None,
    no_headers: load_options.NoHeaders = False,
    avro_schema: load_options.AvroSchema = None,
    avro_prefix: load_options.AvroPrefix = "none",
    csv_delimiter: load_options.CsvDelimiter = ",",
    csv_quote: load_options.CsvQuote = '"',
    partition_by: load_options.PartitionBy = None,
    add_columns: load_options.AddColumns = False,
    target_file_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="How large files should be, such as 128MiB.",
            rich_help_panel=load_options.TABLE,
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            metavar="",
            help="Join small files after loading.",
            rich_help_panel=load_options.TABLE,
        ),
    ] = False,
    starting: Annotated[
        str,
        typer.Option(
            "--starting",
            metavar="WHERE",
            help="earliest or latest, where nothing was loaded yet.",
            rich_help_panel=load_options.START,
            autocompletion=completion.words("earliest", "latest"),
        ),
    ] = "earliest",
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            metavar="",
            help="Record what was never loaded, as retention took it or a stranger's commit passed over "
            "it, and go on.",
            rich_help_panel=load_options.START,
        ),
    ] = False,
    on_recreated: Annotated[
        str,
        typer.Option(
            "--on-recreated",
            metavar="WHAT",
            help="fail, or append: for a topic that was deleted and made anew.",
            rich_help_panel=load_options.START,
            autocompletion=completion.words("fail", "append"),
        ),
    ] = "fail",
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id",
            metavar="ID",
            help="A static member: a restart moves no partition.",
            rich_help_panel=load_options.SPARK,
        ),
    ] = None,
    master: load_options.Master = "local[*]",
    conf: load_options.Conf = None,
    properties: options.Properties = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Load topics into a table, exactly once, as a member of a consumer group.

    The table is made when it is not there. Running it again goes on where the table stands, after whatever;
    several may run at a time with one group, and share the partitions. Ctrl-C ends it cleanly.

    [bold]Examples[/bold]

      millstream load orders --group raw --to delta:lake/raw --once
      millstream load orders -g lake --to delta:orders --schema 'id LONG' --once
      millstream load orders -g l --to delta:ok --schema 'id INT' --check 'id>0'
      millstream load orders -g pg --to 'postgresql://me@db/shop?table=orders'
      millstream load people -g p --to delta:p --schema @people.ddl --sql @p.sql
    """
    from millstream.cli.load.work import LoadOrder, run_load

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
    topics: load_options.Topics,
    group: load_options.Group,
    to: load_options.To,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Compare what is in the table with the group's offsets and the ends of the logs.

    The lag is how many offsets are not in the table yet. Ranges that will never be there, as retention took
    them or a reset passed over them, are listed.

    [bold]Examples[/bold]

      millstream load status orders -g lake --to delta:orders
      millstream load status orders -g lake --to delta:orders --json | jq .lag
    """
    from millstream.cli.load.report import print_status
    from millstream.cli.load.work import read_status

    found = read_status(servers, to, group, topics)
    if as_json:
        print_json(found.as_dict())
    else:
        print_status(found)


def rejected(
    to: load_options.To,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Only the newest so many.")
    ] = 100,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Show the rows that a load has rejected, each with the reason, newest last.

    [bold]Examples[/bold]

      millstream load rejected --to delta:orders
      millstream load rejected --to delta:orders --json | jq '.[].reason'
    """
    from millstream.cli.load.work import read_rejected

    rows = read_rejected(servers, to, limit)
    if as_json:
        print_json(rows)
    elif not rows:
        say("nothing was rejected")
    else:
        columns = ("topic", "partition", "offset", "reason", "value")
        print_table(columns, [tuple(row[name] for name in columns) for row in rows])


def replay(
    to: load_options.To,
    group: load_options.Group,
    value_format: load_options.ValueFormat = None,
    schema: load_options.Schema = None,
    checks: load_options.Checks = None,
    sql: load_options.Sql = None,
    avro_schema: load_options.AvroSchema = None,
    avro_prefix: load_options.AvroPrefix = "none",
    csv_delimiter: load_options.CsvDelimiter = ",",
    csv_quote: load_options.CsvQuote = '"',
    partition_by: load_options.PartitionBy = None,
    add_columns: load_options.AddColumns = False,
    master: load_options.Master = "local[*]",
    conf: load_options.Conf = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Feed rejected rows back, after a fix of the schema or the checks.

    Those that are good now move to the table; the others stay, and it says what is wrong with them now. A
    table that is partitioned by a column made of another needs --partition-by as it was given to the load.

    [bold]Examples[/bold]

      millstream load replay -g lake --to delta:orders --schema 'id LONG'
      millstream load replay -g l --to delta:ok --schema 'id INT' --check 'id>=0'
    """
    from millstream.cli.load.work import LoadOrder, run_replay

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
