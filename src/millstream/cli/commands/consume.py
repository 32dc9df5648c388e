"""``millstream consume``: the command and its help."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import client_properties, client_settings
from millstream.cli.consume.options import PrintOptions, ReadOptions
from millstream.cli.options import ClientOptions, Common
from millstream.cli.positions import End, Position, read_position
from millstream.config import ConsumerConfig
from millstream.terminal.broker_check import require_broker, typed_addresses
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import say

_COMMITS: Final = "records are committed after they were printed, and only with --group"
_NOT_PROPERTIES: Final = {
    "group.id": "use --group",
    "auto.offset.reset": "use --from",
    "enable.auto.commit": _COMMITS,
    "auto.commit.interval.ms": _COMMITS,
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
        typer.Argument(metavar="TOPIC", help="The topics to read.", autocompletion=completion.topics),
    ],
    reading: ReadOptions,
    printing: PrintOptions,
    client: ClientOptions,
    common: Common,
) -> int:
    """Print the records of topics, as they come.

    Without a group, it reads all partitions and commits nothing. With a group, its members share the
    partitions, each continues where the group has committed, and --from applies where nothing is committed
    yet. A record is committed only after it was printed.

    [bold]Examples[/bold]

      millstream consume orders --from earliest --exit-at-end
      millstream consume orders --from -10 --keys --timestamps
      millstream consume orders --from 2026-01-31T12:00 --json | jq .value
      millstream consume orders payments --group audit --from earliest
      millstream consume orders -f '{partition}:{offset} {key} = {value}'
    """
    if common.as_json and printing.format not in ("text", "json"):
        raise UsageError(f"--json and --format {printing.format!r} contradict each other: leave one out")
    if common.as_json:
        printing = replace(printing, format="json")
    from millstream.cli.consume.rendering import renderer

    render = renderer(printing, on_terminal=sys.stdout.isatty(), group=reading.group)
    position = read_position(reading.start, "--from", time.time_ns() // 1_000_000)
    _check(reading, position)
    typed = client_properties(client.properties, _NOT_PROPERTIES, ConsumerConfig)
    settings = client_settings(common.servers, typed, _defaults(reading.group, position))
    typed_addresses(common.servers)
    ConsumerConfig.from_settings(settings)  # an unsupported setting, such as SSL, is why no broker answers
    require_broker(common.servers)
    from millstream.cli.consume.reader import print_records

    if position is End.LATEST and not reading.exit_at_end:
        say("waiting for new records; Ctrl-C ends (--from earliest starts at the first one)")
    return print_records(settings, topics, reading, position, render)


def _defaults(group: str | None, position: Position) -> dict[str, object]:
    if group is None:
        return {"auto.offset.reset": "earliest", "allow.auto.create.topics": "false"}
    assert isinstance(position, End), "others are refused with a group"
    return {
        "group.id": group,
        "auto.offset.reset": position.value,
        "enable.auto.commit": "false",
        "allow.auto.create.topics": "false",
    }


def _check(reading: ReadOptions, position: Position) -> None:
    if reading.group is None:
        return
    if not reading.group:
        raise UsageError("--group is empty: name a group, or leave it out to read without one")
    if reading.partitions:
        raise UsageError("--partition and --group contradict each other: a group shares out the partitions")
    if not isinstance(position, End):
        raise UsageError(
            "--from takes earliest or latest with --group: move the group with 'millstream group reset' first"
        )
