"""The options that all commands share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.terminal.outcome import Session

DEFAULT_SERVERS: Final = "127.0.0.1:9092"
COMMON: Final = "Common options"

ALIASES: Final = {"bootstrap-server": "bootstrap-servers"}
"""Spellings of Kafka's own tools that are understood as well."""


def _remember_debug(context: typer.Context, value: bool) -> bool:
    _session(context).debug = value
    return value


def _remember_json(context: typer.Context, value: bool) -> bool:
    _session(context).as_json = value
    return value


def _session(context: typer.Context) -> Session:
    """Where the end of the command looks for these two. Completion in a shell has no session."""
    return context.obj if isinstance(context.obj, Session) else Session()


Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,…",
        envvar="MILLSTREAM_BOOTSTRAP_SERVERS",
        help="Where the brokers listen.",
        rich_help_panel=COMMON,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        help="Print JSON, for scripts.",
        callback=_remember_json,
        is_eager=True,
        rich_help_panel=COMMON,
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        metavar="",
        help="Show where an error comes from.",
        callback=_remember_debug,
        is_eager=True,
        rich_help_panel=COMMON,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="A setting of the client, under Kafka's name; repeat it for more.",
        rich_help_panel=COMMON,
    ),
]
