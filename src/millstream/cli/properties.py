"""Reads ``NAME=VALUE`` options and backslash escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from millstream.terminal.outcome import UsageError

_ESCAPES: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescaped(text: str) -> str:
    r"""The text with escapes such as ``\t`` replaced."""
    return _ESCAPES.sub(lambda match: _ESCAPED.get(match[1], match[0]), text)


def read_pair(text: str, option: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``; the value may be empty and may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} {text!r} has no value: write {option} NAME=VALUE")
    return name.strip(), value


def read_properties(texts: Iterable[str], option: str) -> dict[str, str]:
    """Read settings, each as ``NAME=VALUE``. Raises UsageError for a repeated name."""
    properties: dict[str, str] = {}
    for text in texts:
        name, value = read_pair(text, option)
        if name in properties:
            raise UsageError(f"{option} {name} is given twice: leave one out")
        properties[name] = value
    return properties
