"""Sends the records of ``millstream produce``: counts what was written, and keeps the first error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.cli.produce.inputs import Draft
from millstream.errors import (
    ClosedError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    MillstreamError,
)
from millstream.terminal.outcome import CommandError, say_interrupted, told_by
from millstream.terminal.output import count, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model import Header, RecordMetadata
    from millstream.producer import Producer

_SHOWN_EVERY: Final = 256
_OF_ONE_RECORD: Final = (MessageTooLargeError, InvalidRecordError, InvalidTimestampError)


class _Failure(NamedTuple):
    """A record that was refused. Of several, the smallest is reported."""

    is_bystander: bool
    """Whether it was refused only because another record of its batch was."""
    line: int
    error: BaseException

    @classmethod
    def of(cls, error: BaseException, line: int) -> _Failure:
        return cls(isinstance(error, InvalidRecordError) and not error.at_fault, line, error)

    def __str__(self) -> str:
        text = told_by(self.error).rstrip(".")
        return f"line {self.line}: {text}" if isinstance(self.error, _OF_ONE_RECORD) else text


class InputSender:
    """Sends drafts, and keeps track of which lines were written."""

    def __init__(self, topic: str, partition: int | None = None, headers: tuple[Header, ...] = ()) -> None:
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._sent = 0
        self._written = 0
        self._last_line = 0
        self._in_flight: set[int] = set()
        self._failure: _Failure | None = None
        self._input_error: MillstreamError | None = None

    @property
    def in_flight(self) -> int:
        """How many records were sent and are not acknowledged yet."""
        return len(self._in_flight)

    @property
    def next_line(self) -> int:
        """The first line not known to be written. While records are in flight, later lines may be."""
        with self._lock:
            return min(self._in_flight, default=self._last_line + 1)

    def send_all(
        self, producer: Producer, drafts: Iterable[Draft], progress: Callable[[int], None] = lambda sent: None
    ) -> None:
        """Send until the input ends or an error occurs, which is kept for the report."""
        try:
            for draft in drafts:
                self._send(producer, draft)
                if self._sent % _SHOWN_EVERY == 0:
                    progress(self._sent)
                if self._failure is not None:
                    return
        except MillstreamError as error:
            self._input_error = error

    def _send(self, producer: Producer, draft: Draft) -> None:
        self._last_line = draft.line
        with self._lock:
            self._in_flight.add(draft.line)
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
        """Note that a record was written or has failed. Runs on the producer's thread, or inside ``send``."""
        error = future.exception()
        if error is not None:
            self._fail(error, line)
            return
        with self._lock:
            self._written += 1
            self._in_flight.discard(line)

    def _fail(self, error: BaseException, line: int) -> None:
        failure = _Failure.of(error, line)
        with self._lock:
            if self._failure is None or failure[:2] < self._failure[:2]:
                self._failure = failure

    def report(
        self, as_json: bool, *, created: bool, is_cut_short: bool = False, is_typed: bool = False
    ) -> None:
        """Print how many records were written; raises CommandError, with that number, after an error.

        ``is_cut_short``: the input was not read to its end. ``is_typed``: it was typed, so cannot be resumed.
        """
        self._raise_error(is_cut_short)
        next_line, others = self.next_line, self.in_flight
        if as_json:
            where = {"interrupted": True, "unknown": others, "next_line": next_line} if is_cut_short else {}
            print_json({**self._numbers(created), **where})
        elif is_cut_short:
            say_interrupted(self._summary(others) + ("" if is_typed else _how_to_continue(next_line, others)))
        else:
            print(self._summary(others))

    def _summary(self, others: int) -> str:
        perhaps = f", perhaps {others} more" if others else ""
        return f"{count(self._written, 'record')} written to {self._topic}{perhaps}"

    def _raise_error(self, is_cut_short: bool) -> None:
        was_given_up = (
            is_cut_short and self._failure is not None and isinstance(self._failure.error, ClosedError)
        )
        if self._failure is not None and not was_given_up:
            others = count(self._written, "other record") if self._written else "nothing"
            verb = "was" if self._written <= 1 else "were"
            raise CommandError(f"{self._failure}; {others} {verb} written") from self._failure.error
        if self._input_error is not None:
            before = f"{count(self._written, 'record')} written before: " if self._written else ""
            raise CommandError(before + told_by(self._input_error)) from self._input_error

    def _numbers(self, created: bool) -> dict[str, Any]:
        seconds = round(time.monotonic() - self._started, 3)
        return {"topic": self._topic, "created": created, "records": self._written, "seconds": seconds}


def _how_to_continue(next_line: int, others: int) -> str:
    doubts = " (some later lines may be written already)" if others else ""
    return f"; to continue, add --from-line {next_line}{doubts}"
