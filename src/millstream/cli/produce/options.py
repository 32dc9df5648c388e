"""The options of ``millstream produce``: how the input is read, and how records are sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.options import repeated
from millstream.cli.properties import read_pair, unescaped
from millstream.terminal.outcome import UsageError
from millstream.wire.records.codecs import CODECS

if TYPE_CHECKING:
    from millstream.model import Header


class InputFormat(StrEnum):
    """How the input is divided into records."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    RECORDS = "records"


_SUFFIXES: Final = {
    ".csv": InputFormat.CSV,
    ".json": InputFormat.JSON,
    ".jsonl": InputFormat.JSON,
    ".ndjson": InputFormat.JSON,
}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How the input is read."""

    format: Annotated[
        InputFormat | None,
        typer.Option("--format", help="How to read the input.", show_default="by the file's name, or lines"),
    ] = None
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="FIELD", help="The JSON field or CSV column that holds the key."),
    ] = None
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="The text between key and value of a line."),
    ] = None
    delimiter: Annotated[
        str, typer.Option("--delimiter", metavar="CHARACTER", help="The character between CSV fields.")
    ] = ","

    def checked(self, path: Path | None) -> InputOptions:
        """These options for a file, with escapes replaced; raises UsageError where they contradict."""
        found = replace(
            self,
            format=self.format or format_of(path),
            key_separator=None if self.key_separator is None else unescaped(self.key_separator),
            delimiter=unescaped(self.delimiter),
        )
        if found.key is not None and found.format not in (InputFormat.JSON, InputFormat.CSV):
            raise UsageError(
                f"--key names a field of JSON or CSV, and the format is {found.format}: add --format json"
            )
        if found.key_separator is not None and found.format is not InputFormat.LINES:
            raise UsageError(
                f"--key-separator is for lines, and the format is {found.format}: use --key instead"
            )
        if found.key_separator == "":
            raise UsageError("--key-separator is empty: write the text between key and value")
        if len(found.delimiter) != 1:
            raise UsageError(f"--delimiter {found.delimiter!r} must be one character")
        return found


def format_of(path: Path | None) -> InputFormat:
    """The format that a file's suffix means; else lines."""
    return InputFormat.LINES if path is None else _SUFFIXES.get(path.suffix.lower(), InputFormat.LINES)


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How records are sent."""

    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            help="Send all records to this partition.",
            show_default="by the key",
        ),
    ] = None
    from_line: Annotated[
        int, typer.Option("--from-line", metavar="N", min=1, help="Skip the lines before this one.")
    ] = 1
    header: Annotated[
        tuple[str, ...], repeated("--header", "-H", metavar="NAME=VALUE", help="Add a header to each record")
    ] = ()
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            metavar="CODEC",
            help=f"{', '.join(CODECS[:-1])} or {CODECS[-1]}.",
            autocompletion=completion.words(*CODECS),
        ),
    ] = "none"
    create: Annotated[
        bool,
        typer.Option("--create", help="Create a missing topic, even if its name is close to another's."),
    ] = False

    def headers(self) -> tuple[Header, ...]:
        """The headers of ``--header``; raises UsageError."""
        pairs = (read_pair(text, "--header") for text in self.header)
        return tuple((name, value.encode()) for name, value in pairs)

    def check(self) -> None:
        """Raise UsageError for an unknown codec."""
        if self.compression not in CODECS:
            raise UsageError(
                f"--compression {self.compression!r} is unknown: choose one of {', '.join(CODECS)}"
            )
