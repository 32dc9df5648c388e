"""The records of ``millstream produce`` on their way: what was sent and written, and what went wrong."""

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


class Sending:
    """Sends drafts, and knows of each line whether it was written."""

    def __init__(self, topic: str, partition: int | None = None, headers: tuple[Header, ...] = ()) -> None:
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._sent = 0
        self._written = 0
        self._last_line = 0
        self._on_their_way: set[int] = set()
        self._failure: _Failure | None = None
        self._input_error: MillstreamError | None = None

    @property
    def on_their_way(self) -> int:
        """How many records were sent, and have no outcome yet."""
        return len(self._on_their_way)

    @property
    def next_line(self) -> int:
        """The first line that is not known to be written. Some behind it may be, if any are on their way."""
        with self._lock:
            return min(self._on_their_way, default=self._last_line + 1)

    def send_all(
        self, producer: Producer, drafts: Iterable[Draft], progress: Callable[[int], None] = lambda sent: None
    ) -> None:
        """Send until the input ends, or until something goes wrong: that is kept for the report."""
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
            self._on_their_way.add(draft.line)
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
            self._on_their_way.discard(line)

    def _fail(self, error: BaseException, line: int) -> None:
        failure = _Failure.of(error, line)
        with self._lock:
            if self._failure is None or failure[:2] < self._failure[:2]:
                self._failure = failure

    # --- what is told at the end

    def report(
        self, as_json: bool, *, created: bool, is_cut_short: bool = False, is_typed: bool = False
    ) -> None:
        """Print how many records were written; raises what went wrong, with that number.

        ``is_cut_short``: there was more to read, and somebody who did not type it may go on from there.
        """
        self._raise_what_went_wrong(is_cut_short)
        next_line, others = self.next_line, self.on_their_way
        if as_json:
            where = {"interrupted": True, "unknown": others, "next_line": next_line} if is_cut_short else {}
            print_json({**self._numbers(created), **where})
        elif is_cut_short:
            say_interrupted(self._told(others) + ("" if is_typed else _way_on(next_line, others)))
        else:
            print(self._told(others))

    def _told(self, others: int) -> str:
        perhaps = f", perhaps {others} more" if others else ""
        return f"{count(self._written, 'record')} written to {self._topic}{perhaps}"

    def _raise_what_went_wrong(self, is_cut_short: bool) -> None:
        was_given_up = (
            is_cut_short and self._failure is not None and isinstance(self._failure.error, ClosedError)
        )
        if self._failure is not None and not was_given_up:
            # What was sent in the meantime may have been written, or not.
            others = count(self._written, "other record") if self._written else "nothing"
            verb = "was" if self._written <= 1 else "were"
            raise CommandError(f"{self._failure}; {others} {verb} written") from self._failure.error
        if self._input_error is not None:
            before = f"{count(self._written, 'record')} written before: " if self._written else ""
            raise CommandError(before + told_by(self._input_error)) from self._input_error

    def _numbers(self, created: bool) -> dict[str, Any]:
        seconds = round(time.monotonic() - self._started, 3)
        return {"topic": self._topic, "created": created, "records": self._written, "seconds": seconds}


def _way_on(next_line: int, others: int) -> str:
    doubts = " (some lines behind it may be written already)" if others else ""
    return f"; to go on, add --from-line {next_line}{doubts}"
