"""Error messages for a Delta table's files: what failed, why, and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import SinkError, SinkRefusedError, SinkUnavailableError

TROUBLE: Final = (OSError, DeltaError, pa.ArrowException)
"""What reading and writing the files of a table may raise."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE: Final = re.compile(r"\s*\d+: ")
_NUMBER: Final = re.compile(r"(?:os error |errno |code: )(\d+)", re.IGNORECASE)
_REFUSED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOST_CHARACTERS: Final = 500
_OF_STORES: Final[tuple[tuple[re.Pattern[str], type[SinkError], str, str], ...]] = (
    (
        re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist"),
        SinkRefusedError,
        "there is no such bucket",
        "Create it, or correct its name, the region or the endpoint",
    ),
    (
        re.compile(
            r"InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|InvalidToken|ExpiredToken"
            r"|40[13] (?:Forbidden|Unauth)"
        ),
        SinkRefusedError,
        "the store refuses the credentials",
        "Check them (storage_options, or the environment) and what they permit",
    ),
    (
        re.compile(
            r"error sending request|tcp connect error|dns error|error trying to connect", re.IGNORECASE
        ),
        SinkUnavailableError,
        "the store cannot be reached",
        "Check the endpoint and the network; running again is safe",
    ),
    (
        re.compile(r"(?:500 Internal|502 Bad|503 S|504 G|429 T)|SlowDown|InternalError"),
        SinkUnavailableError,
        "the store is overloaded or failing",
        "Running again is safe",
    ),
)
"""Errors of object stores by their text: what the error is, and the remedy."""


def failed(what: str, error: Exception, remedy: str = "") -> SinkError:
    """The error to raise. ``what`` names the table and the failed operation; ``remedy`` is the advice where
    the error's number suggests none.
    """
    kind: type[SinkError] = SinkRefusedError if number_of(error) in _REFUSED else SinkError
    for sign, of_store, _, _ in _OF_STORES:
        if sign.search(str(error)):
            kind = of_store
            break
    return kind(words(what, error, remedy))


def words(what: str, error: Exception, remedy: str = "") -> str:
    """The message: what failed, why, and what to do."""
    for sign, _, why, advice in _OF_STORES:
        if sign.search(str(error)):
            return f"{what}: {why}. {advice}"
    return ". ".join(filter(None, (f"{what}: {said(error)}", _remedy(number_of(error)) or remedy)))


def _remedy(number: int | None) -> str:
    if number in _REFUSED:
        return "Let this user read and write there, or load into another directory"
    if number in _FULL:
        return "Make room there, and run it again: that is safe"
    return "Something else has this name: load into another directory" if number == errno.ENOTDIR else ""


@contextmanager
def explained(what: str, remedy: str = "") -> Iterator[None]:
    """Turn errors of a table's files into a SinkError; the parameters are those of ``failed``."""
    try:
        yield
    except TROUBLE as error:
        raise failed(what, error, remedy) from error


def said(error: BaseException) -> str:
    """An error on one line, without the colours, line breaks and backtrace of delta-rs."""
    found = []
    for line in _COLOURS.sub("", str(error)).splitlines():
        if _BACKTRACE.match(line):
            break
        found.append(line.strip(" ↳").rstrip("."))
    text = ": ".join(filter(None, found))
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def number_of(error: Exception) -> int | None:
    """The errno of an error; delta-rs has it only in its text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    match = _NUMBER.search(str(error))
    return None if match is None else int(match[1])
