"""``millstream produce``: records from a file or standard input into a topic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from millstream.cli import completion, options
from millstream.cli.produce.inputs import InputFormat, InputOptions, format_of, read_drafts
from millstream.cli.produce.sender import Sending
from millstream.cli.progress import meter
from millstream.cli.properties import read_pair, unescaped
from millstream.cli.signals import Stopper
from millstream.terminal.outcome import CommandError, Terminated, UsageError
from millstream.terminal.output import count, say
from millstream.wire.records.codecs import CODECS

if TYPE_CHECKING:
    from millstream.model import Header

_NOT_PROPERTIES = {
    "compression.type": "use --compression",
    "key.serializer": "keys are sent as they are read",
    "value.serializer": "values are sent as they are read",
    # of Kafka's console producer
    "parse.key": "use --key-separator",
    "key.separator": "use --key-separator",
    "parse.headers": "use --header, or --format records",
}


def produce(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="Where the records go.", autocompletion=completion.topics),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="What to read; standard input by default, as with -."),
    ] = None,
    input_format: Annotated[
        InputFormat | None,
        typer.Option("--format", help="How to read it.", show_default="by the file's name, or lines"),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", "-k", metavar="FIELD", help="The JSON field or CSV column that holds the key."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Lines are KEY, this text, VALUE."),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", metavar="CHARACTER", help="What separates the fields of CSV.")
    ] = ",",
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", metavar="N", min=0, help="Send all to this one.", show_default="by the key"
        ),
    ] = None,
    from_line: Annotated[
        int,
        typer.Option("--from-line", metavar="N", min=1, help="Leave out what stands before this line."),
    ] = 1,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header; repeat it for more."),
    ] = None,
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            metavar="CODEC",
            help=", ".join(CODECS[:-1]) + f" or {CODECS[-1]}.",
            autocompletion=completion.words(*CODECS),
        ),
    ] = "none",
    create: Annotated[
        bool,
        typer.Option("--create", metavar="", help="Make the topic if it is not there, whatever is near it."),
    ] = False,
    properties: options.Properties = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Send records to a topic: lines, JSON lines or CSV, from a file or standard input.

    Lines are sent as they are, without their ends (those of Windows, too). Each JSON line is checked and sent
    as it is. Each row of a CSV file is sent as a JSON object. The format records takes what millstream
    consume --json prints. The command is done when the brokers have all records; Ctrl-C ends it before that,
    and says how many they have and how to go on. A topic that is not there is made, and it says so, if the
    broker makes topics by itself; a name that is nearly that of another topic is taken for a slip, unless
    there is --create.

    [bold]Examples[/bold]

      echo 'hello' | millstream produce greetings
      millstream produce orders orders.jsonl --key customer.id
      millstream produce customers customers.csv --key country
      millstream produce pairs --key-separator : < pairs.txt
      millstream produce copy --format records < consumed.jsonl
    """
    path = None if file is None or str(file) == "-" else file
    separator = None if key_separator is None else unescaped(key_separator)
    how = InputOptions(input_format or format_of(path), key, separator, unescaped(delimiter))
    _check(how, compression)
    headers = tuple(_header(text) for text in header or ())
    from millstream.cli.clients import client_properties, client_settings, open_producer
    from millstream.cli.produce.ensure_topic import ensure_topic
    from millstream.config import ProducerConfig

    typed = client_properties(properties or (), _NOT_PROPERTIES)
    defaults = {"compression.type": compression, "batch.size": "131072"}
    ProducerConfig.from_settings(
        client_settings(servers, typed, defaults)
    )  # raises before a topic is created
    sending, stopper = Sending(topic, partition, headers), Stopper()
    with _opened(path) as (stream, size):
        made = ensure_topic(servers, topic, create=create)
        if made is not None and not as_json:
            print(f"created topic {topic} ({count(made, 'partition')})", file=sys.stderr, flush=True)
        drafts = (draft for draft in read_drafts(stream, how) if draft.line >= from_line)
        end = partial(sending.report, as_json, created=made is not None, is_typed=stream.isatty())
        try:
            with (
                stopper.listening(),
                meter("sending", size, wanted=not stream.isatty()) as progress,
                open_producer(servers, typed, defaults) as producer,
            ):
                position = stream.tell if stream.seekable() else lambda: 0
                shown = lambda sent: progress(position(), sent)  # noqa: E731 - of this producer
                sending.send_all(producer, stopper.until_stopped(drafts), shown)
                _say_what_is_left(sending, stopper)
        except (KeyboardInterrupt, Terminated):
            end(is_cut_short=True)
            raise
    # The producer is closed: every record has its outcome.
    end(is_cut_short=stopper.is_cut_short)
    if stopper.is_stopped:
        stopper.end()


def _say_what_is_left(sending: Sending, stopper: Stopper) -> None:
    if stopper.is_stopped and sending.on_their_way:
        say(f"{count(sending.on_their_way, 'record')} still on the way; Ctrl-C again gives up on them")


def _check(how: InputOptions, compression: str) -> None:
    if how.key is not None and how.format not in (InputFormat.JSON, InputFormat.CSV):
        raise UsageError(
            f"--key names a field of JSON or CSV, and the format is {how.format}: add --format json"
        )
    if how.key_separator is not None and how.format is not InputFormat.LINES:
        raise UsageError(f"--key-separator is for lines, and the format is {how.format}: use --key instead")
    if how.key_separator == "":
        raise UsageError("--key-separator is empty: write what stands between key and value")
    if len(how.delimiter) != 1:
        raise UsageError(f"--delimiter {how.delimiter!r} must be one character")
    if compression not in CODECS:
        raise UsageError(f"--compression {compression!r} is unknown: choose one of {', '.join(CODECS)}")


def _header(text: str) -> Header:
    name, value = read_pair(text, "--header")
    return name, value.encode()


@contextmanager
def _opened(path: Path | None) -> Iterator[tuple[BinaryIO, int | None]]:
    """The input, and its size where it has one."""
    if path is None:
        if sys.stdin.isatty():
            say("one record per line; Ctrl-D ends")
        yield sys.stdin.buffer, None
        return
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise CommandError(
            f"there is no file {path}: check the name, or leave it out to read standard input"
        ) from error
    with file as stream:
        yield stream, path.stat().st_size if path.is_file() else None
