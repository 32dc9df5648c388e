"""Error messages for a Delta table's files: what failed, why, and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from deltalake.exceptions import DeltaError

from millstream.spark.sinks.base import SinkError, SinkRefusedError

TROUBLE: Final = (OSError, DeltaError, pa.ArrowException)
"""What reading and writing the files of a table may raise."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_BACKTRACE: Final = re.compile(r"\s*\d+: ")
_NUMBER: Final = re.compile(r"(?:os error |errno |code: )(\d+)", re.IGNORECASE)
_REFUSED: Final = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_MOST_CHARACTERS: Final = 500


def failed(what: str, error: Exception, remedy: str = "") -> SinkError:
    """The error to raise. ``what`` names the table and the failed operation; ``remedy`` is the advice where
    the error's number suggests none.
    """
    kind = SinkRefusedError if number_of(error) in _REFUSED else SinkError
    return kind(words(what, error, remedy))


def words(what: str, error: Exception, remedy: str = "") -> str:
    """The message: what failed, why, and what to do."""
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
