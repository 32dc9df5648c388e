"""Positions in a topic as typed: ``earliest``, ``latest``, an offset, a time, or a shift.

| typed | means |
|-|-|
| ``earliest``, ``latest`` | the first record there is; after the last one |
| ``1234``, ``offset:1234`` | this offset, in each partition |
| ``-10`` | ten records before the end of each partition |
| ``2026-01-31T12:00``, ``time:…``, ``@1767225600000`` | the first record from this time on (local time) |
| ``15m``, ``2h``, ``7d``, ``1 hour ago`` | the first record of the last 15 minutes, 2 hours, 7 days, hour |
| ``shift:-100`` | 100 before what the group has committed (groups only) |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from millstream.terminal.outcome import UsageError

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO: Final = re.compile(r"(?P<amount>[0-9]+)(?P<unit>ms|s|m|h|d)( +ago)?")
_AGO_IN_WORDS: Final = re.compile(
    r"(?P<amount>[0-9]+) *(?P<unit>second|minute|hour|day)s? +ago", re.IGNORECASE
)
_LARGEST: Final = 2**63 - 1


class End(Enum):
    """One of the two ends of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The offset itself."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """``count`` records before the end, or the first record where there are fewer."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is this or later; the end where there is none."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Shift:
    """``by`` offsets after the committed offset; before it if negative."""

    by: int


Position = End | AtOffset | BeforeEnd | AtTime
GroupPosition = Position | Shift


def read_position(text: str, option: str, now_ms: int) -> Position:
    """Read a position. ``now_ms`` is the current time, for ages such as ``15m``."""
    position = _read(text.strip(), option, now_ms)
    if isinstance(position, Shift):
        raise UsageError(f"{option} {text} is for groups only: write an offset, a time, earliest or latest")
    return position


def read_group_position(text: str, option: str, now_ms: int) -> GroupPosition:
    """Read the target of a group reset: a position, or a shift of the committed offset."""
    return _read(text.strip(), option, now_ms)


def _read(text: str, option: str, now_ms: int) -> GroupPosition:
    kind, colon, rest = text.partition(":")
    try:
        if text in ("earliest", "latest"):
            return End(text)
        if colon and kind == "shift":
            return Shift(_number(rest))
        if colon and kind == "offset":
            return AtOffset(_offset(rest))
        if re.fullmatch(r"-[0-9]+", text):
            return BeforeEnd(_number(text[1:]))
        if re.fullmatch(r"[0-9]+", text):
            return AtOffset(_offset(text))
        return AtTime(_timestamp_ms(rest if colon and kind == "time" else text, now_ms))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text!r} is not a position: write earliest, latest, an offset, "
            "a time such as 2026-01-31T12:00, or an age such as 15m"
        ) from None


def _number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ValueError(text)
    number = int(text)
    if abs(number) > _LARGEST:
        raise ValueError(text)
    return number


def _offset(text: str) -> int:
    offset = _number(text)
    if offset < 0:
        raise ValueError(text)
    return offset


def _timestamp_ms(text: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(text) or _AGO_IN_WORDS.fullmatch(text)
    if ago is not None:
        unit = ago["unit"] if ago["unit"] in _UNITS_MS else ago["unit"][0].lower()
        return max(0, now_ms - int(ago["amount"]) * _UNITS_MS[unit])
    if text.startswith("@"):
        return _offset(text[1:])
    # A time without a zone is local time.
    return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1000))
