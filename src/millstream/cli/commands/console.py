"""``millstream console``: the command and its help."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from millstream.cli import completion
from millstream.cli.clients import client_properties
from millstream.cli.options import ClientOptions, Common, repeated
from millstream.terminal.broker_check import typed_addresses

_PACKAGES: Final = ("starlette", "uvicorn", "jinja2")


def console(
    client: ClientOptions,
    common: Common,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=0, max=65535, help="0 is any free one.")
    ] = 8090,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Listen where other machines can connect. There is no login."),
    ] = False,
    opens_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = False,
    refresh: Annotated[
        float,
        typer.Option("--refresh", metavar="SECONDS", min=0.2, help="How often pages are updated."),
    ] = 2.0,
    tables: Annotated[
        list[str] | None,
        repeated(
            "--table",
            metavar="SINK",
            help="Show what a load's table holds, as its --to names it",
            autocompletion=completion.sinks,
        ),
    ] = None,
) -> None:
    """See topics, groups and loads in the browser, live.

    The console is read-only. It prints one line when it is ready and runs until Ctrl-C. If no broker answers,
    it keeps trying.

    [bold]Examples[/bold]

      millstream console
      millstream console --open --refresh 5
      millstream console --table delta:lake/orders --port 8091
    """
    from millstream.extras import require

    for package in _PACKAGES:
        require(package, "console")
    from millstream.config import AdminConfig
    from millstream.console.console import ConsoleSettings
    from millstream.console.web.server import ServeOptions, serve

    typed_addresses(common.servers)
    typed = client_properties(client.properties, {}, AdminConfig)
    settings = ConsoleSettings(common.servers, refresh, tuple(dict.fromkeys(tables or ())), typed)
    AdminConfig.from_settings(settings.for_clients(), {})
    options = ServeOptions(settings, host, port, allow_remote, opens_browser, common.as_json)
    serve(options, lambda line: print(line, flush=True))
