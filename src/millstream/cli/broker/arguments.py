"""The options of ``millstream broker``, and a reader of the plain ones that costs nothing to import.

The command line's parser takes longer to load than the broker takes to start. What is typed correctly is
therefore read here; everything else (``--help``, a typo, a missing value) is left to the parser, which knows
the same options and explains them. A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class BrokerOrder:
    """What ``millstream broker`` was asked to do."""

    data: str = "millstream-data"
    listen: str = "127.0.0.1:9092"
    settings: tuple[str, ...] = ()
    """Each as ``name=value``."""
    allow_remote: bool = False
    log_level: str = "INFO"
    as_json: bool = False
    debug: bool = False


_WITH_VALUE: Final = {"--data": "data", "--listen": "listen", "--log-level": "log_level"}
_FLAGS: Final = {"--allow-remote": "allow_remote", "--json": "as_json", "--debug": "debug"}


def read_plainly(arguments: Sequence[str]) -> BrokerOrder | None:
    """Read the options; None when anything about them needs a closer look."""
    values: dict[str, Any] = {}
    settings: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in _FLAGS:
            values[_FLAGS[argument]] = True
            continue
        option, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "")
        if not value or value.startswith("-"):
            return None
        if option == "--set":
            settings.append(value)
        elif option in _WITH_VALUE:
            values[_WITH_VALUE[option]] = value
        else:
            return None
    if values.get("log_level", "INFO") not in LOG_LEVELS:
        return None
    return BrokerOrder(settings=tuple(settings), **values)
