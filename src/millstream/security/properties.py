"""Java's properties files, such as client.properties: comments, continued lines and escapes."""

from __future__ import annotations

import re
from typing import Final

_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<character>.))", re.DOTALL)
_PAIR: Final = re.compile(
    r"(?P<name>(?:[^\s:=\\]|\\.)*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(?P<value>.*)", re.DOTALL
)


def parse_properties(text: str) -> dict[str, str]:
    """Read names and values as ``java.util.Properties`` does; of a repeated name, the last counts.

    Raises ValueError, which names the line but does not quote it, as it may hold a password.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not NAME=VALUE")
        found[_unescaped(match["name"], number)] = _unescaped(match["value"], number)
    return found


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines with their numbers, continued ones joined; comments and blank lines are left out."""
    lines: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = line.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        start, before = begun or (number, "")
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun = (start, before + (line[:-1] if is_continued else line))
        if not is_continued:
            lines.append(begun)
            begun = None
    return lines if begun is None else [*lines, begun]


def _unescaped(text: str, number: int) -> str:
    if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})", text):
        raise ValueError(f"line {number} has a \\u that four hexadecimal digits do not follow")
    return _ESCAPE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    if match["code"]:
        return chr(int(match["code"], 16))
    return _ESCAPED.get(match["character"], match["character"])
