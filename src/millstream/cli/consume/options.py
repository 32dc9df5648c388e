"""The options of ``millstream consume``: which records are read, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream import serde
from millstream.cli import completion
from millstream.cli.options import repeated

FORMATS: Final = ("text", "json", "table", "raw")
_OURS: Final = ("text", "json", "hex", "base64")  # text is string; hex and base64 show bytes
VALUE_FORMATS: Final = (*_OURS, *(name for name in serde.FORMATS if name not in ("bytes", "string", "json")))
FIELDS: Final = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
_PANEL: Final = "Formats"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which records to read, and when to end; never, where no limit is set."""

    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, and commit.",
            autocompletion=completion.groups,
        ),
    ] = None
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="earliest, latest, an offset, -N (before the end), a time, or an age such as 15m.",
            autocompletion=completion.words("earliest", "latest", "offset:", "time:"),
        ),
    ] = "latest"
    partitions: Annotated[
        tuple[int, ...], repeated("--partition", "-p", metavar="N", min=0, help="Only this partition")
    ] = ()
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=0, help="End after N records.")
    ] = None
    idle_seconds: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="End after SECONDS without a record."),
    ] = None
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="End at the current end of the partitions.")
    ] = False


def _format_option(*names: str, help: str, known: tuple[str, ...]) -> Any:
    complete = completion.words(*known)
    return typer.Option(*names, metavar="FORMAT", help=help, rich_help_panel=_PANEL, autocompletion=complete)


def _field_flag(name: str, help: str) -> Any:
    return typer.Option(name, help=help, rich_help_panel=_PANEL)


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """How records are printed."""

    format: Annotated[
        str,
        _format_option(
            "--format",
            "-f",
            help=f"text, json, table, raw, or a template of {{{'}, {'.join(FIELDS)}}}.",
            known=FORMATS,
        ),
    ] = "text"
    keys: Annotated[bool, _field_flag("--keys", "Print keys before values.")] = False
    offsets: Annotated[bool, _field_flag("--offsets", "Print topic, partition and offset first.")] = False
    timestamps: Annotated[bool, _field_flag("--timestamps", "Print times before values.")] = False
    headers: Annotated[bool, _field_flag("--headers", "Print headers before values.")] = False
    key_format: Annotated[
        str, _format_option("--key-format", help="How keys are decoded, as for values.", known=VALUE_FORMATS)
    ] = "text"
    value_format: Annotated[
        str,
        _format_option(
            "--value-format",
            help=f"How values are decoded: {', '.join(VALUE_FORMATS[:8])}, …",
            known=VALUE_FORMATS,
        ),
    ] = "text"
    schema: Annotated[
        Path | None,
        typer.Option("--schema", metavar="FILE", help="The schema of Avro values.", rich_help_panel=_PANEL),
    ] = None

    @property
    def fields_before_value(self) -> tuple[str, ...]:
        """The fields of a text line before the value, in their order."""
        return (
            *(("topic", "partition", "offset") if self.offsets else ()),
            *(("time",) if self.timestamps else ()),
            *(("headers",) if self.headers else ()),
            *(("key",) if self.keys else ()),
        )
