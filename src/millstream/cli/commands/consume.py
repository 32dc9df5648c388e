"""``millstream consume``: print the records of topics, with or without a group."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import completion, options
from millstream.cli.clients import client_properties
from millstream.cli.consume.rendering import FIELDS, FORMATS, VALUE_FORMATS, Appearance, renderer
from millstream.cli.positions import End, Position, read_position
from millstream.terminal.broker_check import require_broker
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import say

if TYPE_CHECKING:
    from millstream.cli.consume.reader import Limits

_FORMATS = "Formats"
_NOT_PROPERTIES = {
    "group.id": "use --group",
    "auto.offset.reset": "use --from",
    "enable.auto.commit": "records are committed after they were printed, and only with --group",
    "auto.commit.interval.ms": "records are committed after they were printed, and only with --group",
    "key.deserializer": "use --key-format",
    "value.deserializer": "use --value-format",
    # of Kafka's console consumer
    "print.key": "use --keys",
    "print.offset": "use --offsets",
    "print.partition": "use --offsets",
    "print.timestamp": "use --timestamps",
    "print.headers": "use --headers",
    "print.value": "use --format with a template such as '{key}'",
    "key.separator": "use --format with a template such as '{key}: {value}'",
}


def consume(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC", help="What to read.", autocompletion=completion.topics),
    ],
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Share the partitions with a group, and commit.",
            autocompletion=completion.groups,
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="earliest, latest, an offset, -N (before the end), a time, or an age such as 15m.",
            autocompletion=completion.words("earliest", "latest", "offset:", "time:"),
        ),
    ] = "latest",
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this one; repeat it for more."),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=0, help="End after so many records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="End after so long without a record."),
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", metavar="", help="End where the partitions end now.")
    ] = False,
    how: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help=f"text, json, table, raw, or a template of {{{'}, {'.join(FIELDS)}}}.",
            rich_help_panel=_FORMATS,
            autocompletion=completion.words(*FORMATS),
        ),
    ] = "text",
    keys: Annotated[
        bool, typer.Option("--keys", metavar="", help="Keys in front.", rich_help_panel=_FORMATS)
    ] = False,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets", metavar="", help="Topic, partition and offset in front.", rich_help_panel=_FORMATS
        ),
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", metavar="", help="Times in front.", rich_help_panel=_FORMATS)
    ] = False,
    headers: Annotated[
        bool, typer.Option("--headers", metavar="", help="Headers in front.", rich_help_panel=_FORMATS)
    ] = False,
    key_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="How keys are read, as values are.",
            rich_help_panel=_FORMATS,
            autocompletion=completion.words(*VALUE_FORMATS),
        ),
    ] = "text",
    value_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help=f"How values are read: {', '.join(VALUE_FORMATS[:8])}, …",
            rich_help_panel=_FORMATS,
            autocompletion=completion.words(*VALUE_FORMATS),
        ),
    ] = "text",
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The schema of values in Avro.", rich_help_panel=_FORMATS),
    ] = None,
    properties: options.Properties = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Print the records of topics, as they come.

    Without a group all partitions are read, and nothing is committed. With one, the partitions are shared
    among its members, each continues where the group has committed, and --from decides where nothing is
    committed yet. A record is committed only after it was printed.

    [bold]Examples[/bold]

      millstream consume orders --from earliest --exit-at-end
      millstream consume orders --from -10 --keys --timestamps
      millstream consume orders --from 2026-01-31T12:00 --json | jq .value
      millstream consume orders payments --group audit --from earliest
      millstream consume orders -f '{partition}:{offset} {key} = {value}'
    """
    shown = (
        *(("topic", "partition", "offset") if offsets else ()),
        *(("time",) if timestamps else ()),
        *(("headers",) if headers else ()),
        *(("key",) if keys else ()),
    )
    appearance = Appearance(
        _format(how, as_json), key_format, value_format, schema, shown, sys.stdout.isatty(), group
    )
    render = renderer(appearance)
    position = read_position(start, "--from", time.time_ns() // 1_000_000)
    _check(group, position, partitions)
    if shown and appearance.format != "text":
        raise UsageError(
            "--keys, --offsets, --timestamps and --headers are for --format text: leave them out"
        )
    typed = client_properties(properties or (), _NOT_PROPERTIES)
    require_broker(servers)
    from millstream.cli.consume.reader import Limits, read_alone, read_in_group

    limits = Limits(maximum, timeout, exit_at_end)
    _say_what_is_awaited(position, limits)
    if group is None:
        return read_alone(servers, typed, topics, partitions or (), position, limits, render)
    assert isinstance(position, End), "checked above"
    return read_in_group(servers, typed, topics, group, position, limits, render)


def _format(how: str, as_json: bool) -> str:
    if as_json and how not in ("text", "json"):
        raise UsageError(f"--json and --format {how!r} contradict each other: leave one out")
    return "json" if as_json else how


def _check(group: str | None, position: Position, partitions: list[int] | None) -> None:
    if group is None:
        return
    if not group:
        raise UsageError("--group is empty: name a group, or leave it out to read without one")
    if partitions:
        raise UsageError("--partition and --group contradict each other: a group shares out the partitions")
    if not isinstance(position, End):
        raise UsageError(
            "--from takes earliest or latest with --group: move the group with 'millstream group reset' first"
        )


def _say_what_is_awaited(position: Position, limits: Limits) -> None:
    if position is End.LATEST and not limits.exit_at_end:
        say("waiting for new records; Ctrl-C ends (--from earliest starts at the first one)")
