"""One run of ``millstream produce``: open the input, ensure the topic, send, and report."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from millstream.cli.clients import client_settings, open_producer
from millstream.cli.options import Common
from millstream.cli.produce.ensure_topic import ensure_topic
from millstream.cli.produce.inputs import read_drafts
from millstream.cli.produce.options import InputOptions, SendOptions
from millstream.cli.produce.sender import InputSender
from millstream.cli.progress import meter
from millstream.cli.signals import Stopper
from millstream.config import ProducerConfig
from millstream.terminal.outcome import CommandError, Terminated
from millstream.terminal.output import count, say


def send_input(
    topic: str,
    path: Path | None,
    reading: InputOptions,
    sending: SendOptions,
    common: Common,
    properties: Mapping[str, str],
) -> None:
    """Send a file, or standard input where ``path`` is None, and print how many records were written."""
    sender, stopper = InputSender(topic, sending.partition, sending.headers()), Stopper()
    defaults = {"compression.type": sending.compression, "batch.size": "131072"}
    # Raises for bad settings before a topic is created.
    ProducerConfig.from_settings(client_settings(common.servers, properties, defaults))
    with _opened(path) as (stream, size):
        partitions = ensure_topic(common.servers, topic, create=sending.create)
        if partitions is not None and not common.as_json:
            print(f"created topic {topic} ({count(partitions, 'partition')})", file=sys.stderr, flush=True)
        drafts = (draft for draft in read_drafts(stream, reading) if draft.line >= sending.from_line)
        report = partial(
            sender.report, common.as_json, created=partitions is not None, is_typed=stream.isatty()
        )
        try:
            with (
                stopper.listening(),
                meter("sending", size, wanted=not stream.isatty()) as progress,
                open_producer(common.servers, properties, defaults) as producer,
            ):
                position = stream.tell if stream.seekable() else lambda: 0
                shown = lambda sent: progress(position(), sent)  # noqa: E731 - of this producer
                sender.send_all(producer, stopper.until_stopped(drafts), shown)
                if stopper.is_stopped and sender.in_flight:
                    say(f"{count(sender.in_flight, 'record')} still in flight; Ctrl-C again gives up on them")
        except (KeyboardInterrupt, Terminated):
            report(is_cut_short=True)
            raise
    # The producer is closed: every record was written or has failed.
    report(is_cut_short=stopper.is_cut_short)
    if stopper.is_stopped:
        stopper.end()


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
