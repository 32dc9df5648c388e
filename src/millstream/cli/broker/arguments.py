"""The options of ``millstream broker``, and a reader for them that imports nothing.

The command line's parser takes longer to import than the broker takes to start. So a correct command line is
read here. Everything else (``--help``, a typo, a missing value) is left to the parser, which takes its
options from the same declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

DEFAULT_DATA: Final = "millstream-data"
DEFAULT_LISTEN: Final = "127.0.0.1:9092"
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


def _option(name: str, default: Any, **typer_option: Any) -> Any:
    return field(default=default, metadata={"names": (name,), **typer_option})


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What ``millstream broker`` was told on the command line."""

    data: str = _option(
        "--data",
        "",
        metavar="DIR",
        help="The directory that keeps topics and groups.",
        show_default=DEFAULT_DATA,
    )
    listen: str = _option(
        "--listen",
        "",
        metavar="HOST:PORT",
        help="Where clients connect; port 0 is any free one.",
        show_default=DEFAULT_LISTEN,
    )
    config: str = _option(
        "--config",
        "",
        metavar="FILE",
        help="Settings from a file, such as Kafka's server.properties; options go before it.",
        show_default=False,
    )
    settings: tuple[str, ...] = _option(
        "--set", (), metavar="NAME=VALUE", help="One of Kafka's broker settings; repeat it for more."
    )
    allow_remote: bool = _option(
        "--allow-remote",
        False,
        help="Listen without a login on an address that other machines reach.",
    )
    secure: bool = _option(
        "--secure",
        False,
        help="TLS, a login and ACLs; prints where the settings of clients are.",
    )
    metrics: str = _option(
        "--metrics-port",
        "",
        metavar="PORT",
        help="Serve /metrics, /health and /ready there: PORT for this machine, or HOST:PORT.",
        show_default=False,
    )
    log_level: str = _option(
        "--log-level",
        "INFO",
        metavar="LEVEL",
        help="DEBUG, INFO, WARNING or ERROR.",
        choices=LOG_LEVELS,
    )
    as_json: bool = False
    debug: bool = False


_NAMES: Final = {each.metadata["names"][0]: each for each in fields(BrokerOptions) if each.metadata}
_FLAGS: Final = {
    "--allow-remote": "allow_remote",
    "--secure": "secure",
    "--json": "as_json",
    "--debug": "debug",
}


def read_plainly(arguments: Sequence[str]) -> BrokerOptions | None:
    """Read the options; None when anything about them needs the full parser."""
    values: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument in _FLAGS:
            values[_FLAGS[argument]] = True
            continue
        name, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "")
        if not value or value.startswith("-") or name not in _NAMES or name in _FLAGS:
            return None
        option = _NAMES[name].name
        values[option] = (*values.get(option, ()), value) if option == "settings" else value
    if values.get("log_level", "INFO") not in LOG_LEVELS:
        return None
    return BrokerOptions(**values)
