"""How a command ends: its exit code, and one sentence on standard error if it failed.

0 is done, 1 failed, 2 bad usage, 130 and 143 ended by Ctrl-C or SIGTERM. A reader that closes the pipe
(``millstream consume … | head``) has what it wanted: that is 0, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
    """How the errors of a command are reported, as its options say."""

    debug: bool = False
    as_json: bool = False
    typed: tuple[str, ...] = ()
    """The words of the command line."""
    client: dict[str, str] = field(default_factory=dict, repr=False)
    """Settings of all clients of the command, under Kafka's names: from the context, the file, --property."""
    context: str = ""
    """The context that says where the brokers are; empty without one."""


class UsageError(MisuseError):
    """The command line is wrong."""


class CommandError(MillstreamError):
    """The command failed."""


class Terminated(BaseException):
    """Raised on SIGTERM, so that commands clean up as after Ctrl-C."""


_sessions: list[Session] = []
"""The running command, for warnings from code that does not have its session."""


def client_settings() -> dict[str, str]:
    """The client settings that the running command was given."""
    return dict(_sessions[-1].client) if _sessions else {}


def replace_settings(settings: Mapping[str, str]) -> None:
    """Set the client settings of the running command."""
    if _sessions:
        _sessions[-1].client = dict(settings)


def context_used() -> str:
    """The context of the running command; empty without one."""
    return _sessions[-1].context if _sessions else ""


def exit_code_of(command: Callable[[], int | None], session: Session) -> int:
    """Run a command, report its error if any, and return its exit code."""
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
    """Print an error on standard error, and return its exit code."""
    if session.debug:
        traceback.print_exception(error)
    say_error(_sentence(error, session), as_json=session.as_json)
    return MISUSED if isinstance(error, MisuseError) else FAILED


def say_error(sentence: str, *, as_json: bool = False) -> None:
    """Print one error: as a line, in red on a terminal, or as JSON."""
    _say("error", "1;31", sentence, as_json)


def say_interrupted(sentence: str) -> None:
    """Print what was done before Ctrl-C."""
    _say("interrupted", "1;33", sentence, as_json=False)


def warn(sentence: str) -> None:
    """Print a warning on standard error, in the form that the command's options ask for."""
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
    """An error in one sentence. A broker's own explanation replaces the general one."""
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
        # The detail names the subject ("group audit"), the meaning says what is wrong with it.
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
    return f"a bug in millstream, please report it: {type(error).__name__}: {text} (--debug shows where)"


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    try:
        before = signal.signal(signal.SIGTERM, _raise_terminated)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _abandon_stdout() -> None:
    """Redirect standard output, so that the last flush does not fail on the closed pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
