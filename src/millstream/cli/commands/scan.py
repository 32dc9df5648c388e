"""``millstream scan``: the command and its help."""

from __future__ import annotations

import sys
import time
from typing import Final

from millstream.cli.clients import client_properties, client_settings
from millstream.cli.options import ClientOptions, Common, Topic
from millstream.cli.positions import Position, read_position
from millstream.cli.scan.options import PRINTED, DecodeOptions, RangeOptions, RowOptions
from millstream.config import ConsumerConfig
from millstream.suggestions import did_you_mean
from millstream.terminal.broker_check import require_broker, typed_addresses
from millstream.terminal.outcome import UsageError

_NOTHING: Final = "a scan joins no group and commits nothing"
_NOT_PROPERTIES: Final = {
    "group.id": "use --group",
    "group.instance.id": _NOTHING,
    "auto.offset.reset": "use --from",
    "enable.auto.commit": _NOTHING,
    "auto.commit.interval.ms": _NOTHING,
    "key.deserializer": "use --key-format",
    "value.deserializer": "use --value-format",
}


def scan(
    topic: Topic,
    reading: RangeOptions,
    rows: RowOptions,
    decoding: DecodeOptions,
    client: ClientOptions,
    common: Common,
) -> None:
    """Read a range of a topic once, and print it or write it to a file.

    It ends where the topic ended when the command was started, joins no group and commits nothing. A file
    appears when it is complete. The fields of JSON, CSV and Avro values become columns.

    [bold]Examples[/bold]

      millstream scan orders --from '1 hour ago' --to parquet:orders.parquet
      millstream scan orders --from -10
      millstream scan orders --value-format json --where 'id > 10' --limit 20
      millstream scan orders --value-format json --select 'id, _key' --to csv:-
      millstream scan orders --from 2026-01-31T12:00 --until 2026-01-31T13:00
      millstream scan orders --until committed --group audit --json
    """
    if rows.format not in PRINTED:
        hint = did_you_mean(rows.format, PRINTED) or f"choose {', '.join(PRINTED[:-1])} or {PRINTED[-1]}"
        raise UsageError(f"--format {rows.format!r} is unknown: {hint}")
    from millstream.cli.scan.run import bound_of, read_target, run

    target = read_target(rows.to, "json" if common.as_json else rows.format)
    if target.format == "parquet" and target.path is None and sys.stdout.isatty():
        raise UsageError("--to parquet:- is not for a terminal: name a file, or write to a pipe")
    now_ms = time.time_ns() // 1_000_000
    limits = _read(reading.start, "--from", now_ms), _read(reading.end, "--until", now_ms)
    typed = client_properties(client.properties, _NOT_PROPERTIES, ConsumerConfig)
    settings = client_settings(common.servers, typed, {"allow.auto.create.topics": "false"})
    typed_addresses(common.servers)
    ConsumerConfig.from_settings(settings)
    require_broker(common.servers)
    bound = bound_of(limits[0]), bound_of(limits[1])
    run(topic, settings, bound, reading, decoding, rows, target, as_json=common.as_json)


def _read(text: str, option: str, now_ms: int) -> Position | str:
    return "committed" if text == "committed" else read_position(text, option, now_ms)
