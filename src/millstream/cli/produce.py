"""``millstream produce``: records from a file or standard input into a topic."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple

import typer

from millstream.cli import completion, options
from millstream.cli.inputs import Draft, InputFormat, InputOptions, format_of, read_drafts
from millstream.cli.outcome import CommandError, UsageError, told_by
from millstream.cli.output import count, print_json, say
from millstream.cli.progress import Meter, meter
from millstream.cli.properties import read_pair, unescaped
from millstream.errors import InvalidRecordError, InvalidTimestampError, MessageTooLargeError, MillstreamError

if TYPE_CHECKING:
    from millstream.model import Header, RecordMetadata
    from millstream.producer import Producer

_SHOWN_EVERY = 256
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_OF_ONE_RECORD = (MessageTooLargeError, InvalidRecordError, InvalidTimestampError)
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
        typer.Option("--partition", "-p", min=0, help="Send all to this one.", show_default="by the key"),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header; repeat it for more."),
    ] = None,
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            metavar="CODEC",
            help="none, gzip, snappy, lz4 or zstd.",
            autocompletion=completion.words(*_CODECS),
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

    Lines are sent as they are. Each JSON line is checked and sent as it is. Each row of a CSV file is sent as
    a JSON object. The format records takes what millstream consume --json prints. The command is done when
    the brokers have all records. A topic that is not there is made, and it says so, if the broker makes
    topics by itself; a name that is nearly that of another topic is taken for a slip, unless there is
    --create.

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
    from millstream.cli.connect import client_properties, open_producer, settings
    from millstream.cli.creating import ensure_topic
    from millstream.config import ProducerConfig

    typed = client_properties(properties or (), _NOT_PROPERTIES)
    defaults = {"compression.type": compression, "batch.size": "131072"}
    ProducerConfig.from_settings(settings(servers, typed, defaults))  # no topic is made for what is refused
    sending = _Sending(topic, partition, headers)
    with _opened(path) as (stream, size):
        made = ensure_topic(servers, topic, create=create)
        if made is not None and not as_json:
            print(f"created topic {topic} ({count(made, 'partition')})", file=sys.stderr, flush=True)
        with (
            meter("sending", size, wanted=not stream.isatty()) as progress,
            open_producer(servers, typed, defaults) as producer,
        ):
            sending.send_all(producer, stream, how, progress)
    # The producer is closed: every record has its outcome.
    sending.report(as_json, created=made is not None)


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
    if compression not in _CODECS:
        raise UsageError(f"--compression {compression!r} is unknown: choose none, gzip, snappy, lz4 or zstd")


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


class _Failure(NamedTuple):
    """A record that was refused. The least of several is the one to tell of."""

    is_bystander: bool
    """Whether it was refused only for another one of its batch."""
    line: int
    error: BaseException

    @classmethod
    def of(cls, error: BaseException, line: int) -> _Failure:
        return cls("as other records of its batch" in str(error), line, error)

    def __str__(self) -> str:
        text = told_by(self.error).rstrip(".")
        return f"line {self.line}: {text}" if isinstance(self.error, _OF_ONE_RECORD) else text


class _Sending:
    """The records on their way: how many were sent and written, and what went wrong."""

    def __init__(self, topic: str, partition: int | None, headers: tuple[Header, ...]) -> None:
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._sent = 0
        self._written = 0
        self._failure: _Failure | None = None
        self._input_error: MillstreamError | None = None

    def send_all(self, producer: Producer, stream: BinaryIO, how: InputOptions, progress: Meter) -> None:
        """Send until the input ends, or until something goes wrong: that is kept for the report."""
        position = stream.tell if stream.seekable() else lambda: 0
        try:
            for draft in read_drafts(stream, how):
                self._send(producer, draft)
                if self._sent % _SHOWN_EVERY == 0:
                    progress(position(), self._sent)
                if self._failure is not None:
                    return
        except MillstreamError as error:
            self._input_error = error

    def _send(self, producer: Producer, draft: Draft) -> None:
        try:
            future = producer.send(
                self._topic,
                draft.value,
                draft.key,
                headers=draft.headers + self._headers,
                partition=self._partition,
                timestamp=draft.timestamp,
            )
        except MillstreamError as error:
            self._fail(error, draft.line)
            return
        self._sent += 1
        future.add_done_callback(partial(self._settle, draft.line))

    def _settle(self, line: int, future: Future[RecordMetadata]) -> None:
        """A record has its outcome. Runs on the producer's thread, or in ``send`` when that was quick."""
        error = future.exception()
        if error is not None:
            self._fail(error, line)
            return
        with self._lock:
            self._written += 1

    def _fail(self, error: BaseException, line: int) -> None:
        failure = _Failure.of(error, line)
        with self._lock:
            if self._failure is None or failure[:2] < self._failure[:2]:
                self._failure = failure

    def report(self, as_json: bool, *, created: bool) -> None:
        """Print how many records were written; raises what went wrong, with that number."""
        if self._failure is not None:  # what was sent in the meantime may have been written, or not
            others = count(self._written, "other record") if self._written else "nothing"
            verb = "was" if self._written <= 1 else "were"
            raise CommandError(f"{self._failure}; {others} {verb} written") from self._failure.error
        if self._input_error is not None:
            before = f"{count(self._written, 'record')} written before: " if self._written else ""
            raise CommandError(before + told_by(self._input_error)) from self._input_error
        seconds = time.monotonic() - self._started
        if as_json:
            print_json(
                {
                    "topic": self._topic,
                    "created": created,
                    "records": self._written,
                    "seconds": round(seconds, 3),
                }
            )
        else:
            print(f"{count(self._written, 'record')} written to {self._topic}")
