"""``millstream console``: its options and help. What it does is in ``millstream.console``."""

from __future__ import annotations

from typing import Annotated

import typer

from millstream.cli import completion, options
from millstream.terminal.outcome import UsageError

_PACKAGES = ("starlette", "uvicorn", "jinja2")


def console(
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="0 is any free one.")
    ] = 8090,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            metavar="",
            help="Listen on an address that other machines reach. There is no login.",
        ),
    ] = False,
    opens_browser: Annotated[
        bool, typer.Option("--open/--no-open", metavar="", help="Open it in the browser.")
    ] = False,
    refresh: Annotated[
        float,
        typer.Option(
            "--refresh", metavar="SECONDS", min=0.2, help="How often brokers are asked, and pages renewed."
        ),
    ] = 2.0,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="SINK",
            help="A table of a load, as its --to names it, to show what it holds; repeat it for more.",
            autocompletion=completion.sinks,
        ),
    ] = None,
    properties: options.Properties = None,
    servers: options.Servers = options.DEFAULT_SERVERS,
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """See topics, groups and loads in the browser, live.

    It only looks: nothing can be changed with it. It prints one line when it is ready, and goes on until
    Ctrl-C; a broker that is not there is waited for.

    [bold]Examples[/bold]

      millstream console
      millstream console --open --refresh 5
      millstream console --table delta:lake/orders --port 8091
    """
    from millstream.extras import require

    for package in _PACKAGES:
        require(package, "console")
    from millstream.cli.clients import client_properties
    from millstream.config import AdminConfig
    from millstream.console.console import Settings
    from millstream.console.web.server import ServeOrder, serve
    from millstream.settings import read_addresses

    try:
        read_addresses(servers)
    except ValueError as error:
        raise UsageError(f"--bootstrap-servers {servers!r}: {error}") from None
    client = client_properties(properties or (), {})
    settings = Settings(servers, refresh, tuple(dict.fromkeys(tables or ())), client)
    AdminConfig.from_settings(settings.for_clients(), {})
    order = ServeOrder(settings, host, port, allow_remote, opens_browser, as_json)
    serve(order, lambda line: print(line, flush=True))
