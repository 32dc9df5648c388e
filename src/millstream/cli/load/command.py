"""``millstream load``: run, status, rejected and replay."""

from __future__ import annotations

from millstream.cli import options
from millstream.cli.load import options as load_options
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_json, print_table, say


def load() -> None:
    """Load topics into tables through Spark, exactly once; show loads and their rejected rows.

    millstream load TOPIC is short for millstream load run TOPIC.

    [bold]Examples[/bold]

      millstream load orders -g lake --to delta:orders --schema 'id LONG' --once
      millstream load status orders -g lake --to delta:orders
      millstream load rejected --to delta:orders
    """


@load_options.expanded
def run(
    *,
    topics: load_options.Topics = None,
    pattern: load_options.Pattern = None,
    group: load_options.Group,
    to: load_options.To,
    once: load_options.Once = False,
    every: load_options.Every = 10.0,
    typed: load_options.LoadValues,
    master: load_options.Master = "local[*]",
    conf: load_options.Conf = None,
    properties: options.Properties = None,
    common: options.Common,
) -> int:
    """Load topics into a table, exactly once, as a member of a consumer group.

    The table is created if it does not exist. Running the command again continues where the table is, after a
    crash as well. Several may run at the same time with one group: they share the partitions. Ctrl-C stops it
    cleanly.

    [bold]Examples[/bold]

      millstream load orders --group raw --to delta:lake/raw --once
      millstream load orders -g lake --to delta:orders --schema 'id LONG' --once
      millstream load orders -g l --to delta:ok --schema 'id INT' --check 'id>0'
      millstream load orders -g pg --to 'postgresql://me@db/shop?table=orders'
      millstream load --pattern 'shop-.*' -g shop --to delta:lake/shop
      millstream load people -g p --to delta:p --schema @people.ddl --sql @p.sql
    """
    from millstream.cli.load.work import LoadOrder, run_load

    settings = {**typed, "pattern": pattern}
    order = LoadOrder(topics or (), group, to, common.servers, settings, properties or (), master, conf or ())
    return run_load(order, None if once else every, as_json=common.as_json)


def status(
    *,
    topics: load_options.Topics = None,
    pattern: load_options.Pattern = None,
    group: load_options.Group,
    to: load_options.To,
    common: options.Common,
) -> None:
    """Compare what is in the table with the group's offsets and the ends of the logs.

    The lag is the number of offsets that are not in the table yet. Ranges that will never be there, as they
    were deleted by retention or skipped by a reset, are listed.

    [bold]Examples[/bold]

      millstream load status orders -g lake --to delta:orders
      millstream load status orders -g lake --to delta:orders --json | jq .lag
    """
    from millstream.cli.load.report import print_status
    from millstream.cli.load.work import read_status

    if bool(topics) == (pattern is not None):
        raise UsageError("give the topics that are loaded, or --pattern")
    found = read_status(common.servers, to, group, topics or (), pattern)
    if common.as_json:
        print_json(found.as_dict())
    else:
        print_status(found)


def rejected(
    *,
    to: load_options.To,
    limit: load_options.Limit = 100,
    common: options.Common,
) -> None:
    """Show how many rows were rejected for which reason, then the newest of them, newest last.

    [bold]Examples[/bold]

      millstream load rejected --to delta:orders
      millstream load rejected --to delta:orders --json | jq '.[].reason'
    """
    from millstream.cli.load.work import count_reasons, read_rejected

    rows = read_rejected(common.servers, to, limit)
    if common.as_json:
        print_json(rows)
    elif not rows:
        say("nothing was rejected")
    else:
        print_table(("rejected", "reason"), count_reasons(common.servers, to))
        print()
        columns = ("topic", "partition", "offset", "reason", "value")
        print_table(columns, [tuple(row[name] for name in columns) for row in rows])


@load_options.expanded
def replay(
    *,
    to: load_options.To,
    group: load_options.Group,
    typed: load_options.ShapingValues,
    master: load_options.Master = "local[*]",
    conf: load_options.Conf = None,
    common: options.Common,
) -> None:
    """Load rejected rows again, after a fix of the schema or the checks.

    Rows that are good now move to the table; the others stay, and their reasons are shown.

    [bold]Examples[/bold]

      millstream load replay -g lake --to delta:orders --schema 'id LONG'
      millstream load replay -g l --to delta:ok --schema 'id INT' --check 'id>=0'
    """
    from millstream.cli.load.work import LoadOrder, run_replay

    if typed["schema"] is None and typed["avro_schema"] is None:
        raise UsageError("replay needs the schema that rows must have now: give --schema (or --avro-schema)")
    order = LoadOrder((), group, to, common.servers, typed, master=master, conf=conf or ())
    run_replay(order, as_json=common.as_json)
