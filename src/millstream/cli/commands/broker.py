"""``millstream broker``: its options and help. What it does is in ``serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli.broker.arguments import LOG_LEVELS, BrokerOrder
from millstream.cli.completion import words
from millstream.cli.options import AsJson, Debug
from millstream.terminal.outcome import UsageError

_DEFAULT = BrokerOrder()


def broker(
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="The directory that keeps topics and groups.")
    ] = _DEFAULT.data,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where clients connect; port 0 is any free one."),
    ] = _DEFAULT.listen,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="One of Kafka's broker settings; repeat it for more."
        ),
    ] = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            metavar="",
            help="Listen on an address that other machines reach. There is no authentication yet.",
        ),
    ] = False,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="DEBUG, INFO, WARNING or ERROR.",
            autocompletion=words(*LOG_LEVELS),
        ),
    ] = _DEFAULT.log_level,
    as_json: AsJson = False,
    debug: Debug = False,
) -> int:
    """Run the embedded broker until Ctrl-C or SIGTERM.

    One process, durable, speaking Kafka's own protocol: any Kafka client can use it. It prints one line when
    it is ready, and logs to standard error.

    [bold]Examples[/bold]

      millstream broker
      millstream broker --data /var/lib/millstream --listen 127.0.0.1:19092
      millstream broker --set num.partitions=4 --set log.retention.hours=24
      millstream broker --json --listen 127.0.0.1:0
    """
    level = log_level.upper()
    if level not in LOG_LEVELS:
        raise UsageError(f"--log-level {log_level!r} is unknown: choose {', '.join(LOG_LEVELS)}")
    from millstream.cli.broker.serve import serve

    return serve(BrokerOrder(data, listen, tuple(settings or ()), allow_remote, level, as_json, debug))
