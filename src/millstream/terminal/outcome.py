"""How a command ends: an exit code, and one sentence on standard error where it did not work out.

0 means done, 1 failed, 2 misused (what was typed makes no sense), 130 and 143 ended by Ctrl-C or SIGTERM.
A reader that closes the pipe (``millstream consume … | head``) has what it wanted: that is done, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

from millstream.errors import (
    BrokerError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MillstreamError,
    MisuseError,
    NonEmptyGroupError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 128 + signal.SIGINT
_EXPLAINED_BY_BROKERS: Final = (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    RecordTooLargeError,
)
TERMINATED: Final = 128 + signal.SIGTERM


@dataclass
class Session:
    """What the options of a command say about how to report its errors."""

    debug: bool = False
    as_json: bool = False
    typed: tuple[str, ...] = ()
    """The words of the command line."""


class UsageError(MisuseError):
    """What was typed makes no sense."""


class CommandError(MillstreamError):
    """The command could not do its work."""


class Terminated(BaseException):
    """SIGTERM came: clean up and leave, as after Ctrl-C."""


_sessions: list[Session] = []
"""The command that runs, for those that have something to say and do not know of it."""


def exit_code_of(command: Callable[[], int | None], session: Session) -> int:
    """Run a command and return its exit code, having reported what went wrong."""
    _sessions.append(session)
    try:
        return _exit_code_of(command, session)
    finally:
        _sessions.remove(session)


def _exit_code_of(command: Callable[[], int | None], session: Session) -> int:
    try:
        with _sigterm_raises():
            code = command()
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        _abandon_stdout()
        return DONE
    except Exception as error:  # noqa: BLE001 - the last resort of a program
        return report(error, session)
    return DONE if code is None else code


def report(error: Exception, session: Session) -> int:
    """Say on standard error what went wrong, and return the exit code that goes with it."""
    if session.debug:
        traceback.print_exception(error)
    say_error(_sentence(error, session), as_json=session.as_json)
    return MISUSED if isinstance(error, MisuseError) else FAILED


def say_error(sentence: str, *, as_json: bool = False) -> None:
    """Print one error: as a line, in red on a terminal, or as JSON."""
    _say("error", "1;31", sentence, as_json)


def say_interrupted(sentence: str) -> None:
    """Print what was done until Ctrl-C."""
    _say("interrupted", "1;33", sentence, as_json=False)


def warn(sentence: str) -> None:
    """Print what the user may not have meant, in the same ways. In a pipe, too: it may be all that tells."""
    from millstream.terminal.spelling import as_typed

    session = _sessions[-1] if _sessions else Session()
    _say("warning", "1;33", as_typed(sentence, session.typed), session.as_json)


def _say(kind: str, colour: str, sentence: str, as_json: bool) -> None:
    if as_json:
        line = json.dumps({kind: sentence}, ensure_ascii=False)
    elif sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        line = f"\x1b[{colour}m{kind}:\x1b[0m {sentence}"
    else:
        line = f"{kind}: {sentence}"
    print(line, file=sys.stderr, flush=True)


def told_by(error: BaseException) -> str:
    """What an error says, in a sentence. What the broker said of the case is not explained again."""
    text = str(error)
    if isinstance(error, NonEmptyGroupError):
        text = error.detail if " has members" in error.detail else f"{error.detail} has members"
        text += ": stop them first"
    elif isinstance(error, UnknownTopicOrPartitionError) and " has the partitions " in error.detail:
        text = (
            error.detail.replace("the partitions 0 to 0,", "only partition 0,") + ": choose one that is there"
        )
    elif isinstance(error, _EXPLAINED_BY_BROKERS) and ": " in error.detail:
        text = error.detail
    elif isinstance(error, BrokerError) and error.detail and not set(".:") & set(error.detail):
        # What it is about ("group audit"), and what is wrong with that: one sentence.
        text = f"{error.detail}: {error.meaning[0].lower()}{error.meaning[1:].rstrip('.')}"
    return " ".join(text.split())


def _sentence(error: Exception, session: Session) -> str:
    text = told_by(error)
    if isinstance(error, MillstreamError):
        from millstream.terminal.spelling import as_typed

        is_about_a_table = type(error).__module__.startswith("millstream.spark.")
        setting = getattr(error, "setting", None)
        return as_typed(text, session.typed, setting=setting, is_about_a_table=is_about_a_table)
    if isinstance(error, OSError):
        reason = error.strerror or text or type(error).__name__
        return f"{error.filename}: {reason}" if error.filename is not None else reason
    return f"a defect of millstream's, please report it: {type(error).__name__}: {text} (--debug shows where)"


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGTERM, _raise_terminated)
    except ValueError:  # not the main thread, which alone may handle signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere, instead of failing on the pipe that is closed."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
