"""Parses dates, times, decimals and bytes that are written as text.

Each type has a function for one text, which defines it; ``column`` parses a whole column where Arrow's parser
means the same. Texts must match a pattern before Arrow sees them, as Arrow accepts more than is documented
(hexadecimal numbers, infinities, the year 0).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
ZONE: Final = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
TIME: Final = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
NUMBER: Final = r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?"
INTEGER: Final = r"-?[0-9]+"

_DATE: Final = re.compile(DATE)
_TIMESTAMP: Final = re.compile(
    rf"({DATE})(?:[T ]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(?:\.([0-9]{{1,9}}))?)?)?({ZONE})?"
)
_NUMBER: Final = re.compile(NUMBER)
_EXACT: Final = Context(prec=100, Emax=999_999, Emin=-999_999)


def read_date(text: str) -> date:
    """``2024-02-29``; raises ValueError."""
    if not _DATE.fullmatch(text):
        raise ValueError("a date is written 2024-02-29")
    return date(int(text[:4]), int(text[5:7]), int(text[8:]))


def read_timestamp(text: str) -> datetime:
    """An instant: ``2024-02-29T12:00:00.5+01:00``. Without a zone it is UTC. Raises ValueError."""
    moment, zone = _moment(text)
    if zone and zone != "Z":
        sign, hours, minutes = zone[0], int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        if hours > 23 or minutes > 59:
            raise ValueError("not a valid time zone offset")
        away = timedelta(hours=hours, minutes=minutes)
        try:
            moment = moment - away if sign == "+" else moment + away
        except OverflowError as error:
            raise ValueError("it is before the year 1 or after 9999") from error
    return moment.replace(tzinfo=UTC)


def read_local(text: str) -> datetime:
    """A date and time without a zone. Raises ValueError."""
    moment, zone = _moment(text)
    if zone:
        raise ValueError("a TIMESTAMP_NTZ has no zone")
    return moment


def _moment(text: str) -> tuple[datetime, str | None]:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("a timestamp is written 2024-02-29T12:00:00.5Z")
    day, hour, minute, second, fraction, zone = found.groups()
    if hour is None and zone:
        raise ValueError("a date alone has no zone")
    microsecond = int((fraction or "0").ljust(6, "0")[:6])  # as Spark, finer parts are cut off
    clock = time(int(hour or 0), int(minute or 0), int(second or 0), microsecond)
    return datetime.combine(read_date(day), clock), zone


def read_decimal(text: str, precision: int, scale: int) -> Decimal:
    """A number that fits exactly, without rounding; raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a decimal number")
    try:
        number = Decimal(text)
        exact = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation as error:
        raise ValueError("it does not fit") from error
    if exact != number or abs(exact) >= Decimal(10) ** (precision - scale):
        raise ValueError("it does not fit")
    return exact


def read_binary(text: str) -> bytes:
    """Base64, as Spark reads it from JSON; raises ValueError."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("it is not base64") from error


def reader(kind: Any) -> Callable[[str], Any] | None:
    """The function that parses one text of this Arrow type; None if the type is not written as text."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return lambda text: read_decimal(text, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return read_timestamp if kind.tz else read_local
    if pa.types.is_date(kind):
        return read_date
    return read_binary if pa.types.is_binary(kind) else None


def column(texts: pa.StringArray, kind: Any) -> tuple[pa.Array, Any]:
    """A column of texts as this type, and a mask of invalid ones (None if all are valid)."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        found = _times(texts, kind)
    elif pa.types.is_date(kind):
        found = _cast(texts, kind, DATE)
    else:
        found = None
    return (found, None) if found is not None else _each(texts, kind)


def _times(texts: pa.StringArray, kind: Any) -> pa.Array | None:
    import pyarrow as pa

    found = _cast(texts, kind, DATE + TIME.replace("{1,9}", "{1,6}") + (f"(?:{ZONE})" if kind.tz else ""))
    if found is None and kind.tz:
        local = _cast(texts, pa.timestamp("us"), DATE + TIME.replace("{1,9}", "{1,6}"))
        return None if local is None else local.view(kind)
    return found


def _cast(texts: pa.StringArray, kind: Any, pattern: str) -> pa.Array | None:
    """Arrow's cast, if all texts match this pattern and Arrow accepts all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.all(pc.match_substring_regex(texts, f"^(?:{pattern})$"), min_count=0).as_py():
        return None
    try:
        found = texts.cast(kind)
    except pa.ArrowInvalid:
        return None
    extremes = pc.min_max(found)
    least, most = extremes["min"], extremes["max"]
    if least.is_valid and not (_edge(1, kind) <= least.value and most.value < _edge(10_000, kind)):
        return None
    return found


def _edge(year: int, kind: Any) -> int:
    """The beginning of a year; Python's dates are limited to the years 1 to 9999."""
    import pyarrow as pa

    days = date(year - 1, 12, 31).toordinal() + 1 if year > 1 else 1
    days -= date(1970, 1, 1).toordinal()
    return days if pa.types.is_date(kind) else days * 86_400_000_000


def _each(texts: pa.StringArray, kind: Any) -> tuple[pa.Array, Any]:
    import numpy as np
    import pyarrow as pa

    read = reader(kind)
    assert read is not None
    wrong = np.zeros(len(texts), bool)
    values: list[Any] = []
    for place, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else read(text))
        except ValueError:
            values.append(None)
            wrong[place] = True
    return pa.array(values, kind), wrong if wrong.any() else None
