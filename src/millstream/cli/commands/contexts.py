"""``millstream context``: name clusters, choose one, and see and forget them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from millstream.cli import completion
from millstream.cli.connection import context_settings, for_client
from millstream.cli.contexts import (
    ClusterContext,
    add_context,
    contexts_file,
    read_contexts,
    remove_context,
    use_context,
)
from millstream.cli.options import AsJson, Commands, Debug, Properties
from millstream.cli.properties import read_properties
from millstream.terminal.broker_check import typed_addresses
from millstream.terminal.outcome import UsageError
from millstream.terminal.output import print_done, print_fields, print_json, print_lines

NewName = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The context's name.", autocompletion=completion.contexts),
]
_SERVERS: Final = "bootstrap.servers"


def context() -> None:
    """Give clusters names, with their addresses and logins.

    [bold]Examples[/bold]

      millstream context add dev -b 127.0.0.1:9092
      millstream context use dev
      millstream --context dev topic list
    """


def add(
    name: NewName,
    servers_typed: Annotated[
        str | None,
        typer.Option("--bootstrap-servers", "-b", metavar="HOST:PORT,…", help="Where the brokers listen."),
    ] = None,
    config_file: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Client settings, such as Kafka's client.properties. The context refers to the file.",
        ),
    ] = None,
    properties: Properties = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context that has this name.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Keep how to reach a cluster under a name.

    Other users see what you type, in lists of processes. So write a secret as ${env:NAME} or
    ${file:PATH:KEY}, which is read when it is needed, or leave it in the file of --command-config. All
    --property are kept in a file that only you can read.

    [bold]Examples[/bold]

      millstream context add dev -b 127.0.0.1:9092
      millstream context add prod --command-config client.properties
      millstream context add qa -b qa:9093 --property security.protocol=SSL
    """
    added = ClusterContext(
        servers_typed or "",
        os.path.abspath(config_file) if config_file else "",
        _absolute(read_properties(properties or (), "--property")),
    )
    if _SERVERS in added.settings:
        raise UsageError(f"--property {_SERVERS} cannot be given here: use --bootstrap-servers")
    _check(name, added)
    add_context(name, added, replace=replace)
    print_done("context", name, "added", as_json=as_json)


def use(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The context's name.",
            autocompletion=completion.contexts,
            show_default=False,
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context from now on.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Choose the context of all commands that name no brokers themselves.

    It is not used by commands with --context, --bootstrap-servers or a file that names brokers, nor where the
    environment has MILLSTREAM_CONTEXT or MILLSTREAM_BOOTSTRAP_SERVERS.

    [bold]Examples[/bold]

      millstream context use dev
      millstream context use --none
    """
    if none == (name is not None):
        raise UsageError("give the name of a context, or --none: 'millstream context list' shows all")
    use_context(name or "")
    if name is None:
        print_json({"current": None}) if as_json else print("no context is used")
    else:
        print_done("context", name, "used", as_json=as_json)


def list_contexts(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the contexts, without their secrets.

    [bold]Examples[/bold]

      millstream context list
      millstream context list --json
    """
    contexts = read_contexts()
    found = [_shown(name, each, contexts.current) for name, each in sorted(contexts.known.items())]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["name"],
            "*" if one["current"] else "",
            one["bootstrap_servers"],
            one["security_protocol"],
            one["command_config"],
        )
        for one in found
    ]
    print_lines(
        ("context", "current", "brokers", "security", "command config"),
        rows,
        none="there are no contexts: 'millstream context add NAME' adds one",
    )


def show(name: Name, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show a context, without its secrets, and where it is kept.

    [bold]Examples[/bold]

      millstream context show dev
      millstream context show dev --json
    """
    contexts = read_contexts()
    values = _shown(name, contexts.get(name), contexts.current)
    if as_json:
        print_json(values)
        return
    print_fields(
        {
            "context": name,
            "current": "yes" if values["current"] else "no",
            _SERVERS: values["bootstrap_servers"],
            "command config": values["command_config"],
            **values["settings"],
            "kept in": contexts_file(),
        }
    )


def remove(name: Name, as_json: AsJson = False, debug: Debug = False) -> None:
    """Forget a context. The file of its --command-config stays.

    [bold]Examples[/bold]

      millstream context remove dev
      millstream context remove dev --json
    """
    remove_context(name)
    print_done("context", name, "removed", as_json=as_json)


def _absolute(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings under Kafka's names, with paths that also hold in other directories."""
    return {
        name.replace("_", "."): os.path.abspath(value)
        if name.endswith(("location", ".location")) and value not in ("", "probe") and "${" not in value
        else value
        for name, value in properties.items()
    }


def _check(name: str, added: ClusterContext) -> None:
    """Raise for settings that no client would take."""
    from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig

    settings = context_settings(name, added)
    servers = settings.pop(_SERVERS, "")
    if not servers:
        raise UsageError(
            "a context needs brokers: give --bootstrap-servers, or a --command-config with bootstrap.servers"
        )
    typed_addresses(servers)
    for kind in (AdminConfig, ConsumerConfig, ProducerConfig):
        kind.from_settings({**for_client(kind, settings), _SERVERS: servers}, {})


def _shown(name: str, context: ClusterContext, current: str) -> dict[str, Any]:
    """A context without secrets; its file may be gone, or not be for these eyes."""
    try:
        settings = context_settings(name, context)
    except UsageError:
        settings = {_SERVERS: context.servers, **context.settings}
    return {
        "name": name,
        "current": name == current,
        "bootstrap_servers": settings.get(_SERVERS) or None,
        "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
        "command_config": context.command_config or None,
        "settings": context.shown_settings(),
    }


COMMANDS: Final[Commands] = {
    "add": add,
    "use": use,
    "list": list_contexts,
    "show": show,
    "remove": remove,
}
