"""Options and arguments that commands share, and groups of options as frozen dataclasses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, get_args, get_type_hints

import typer

from millstream.cli import completion
from millstream.cli.connection import decide_connection
from millstream.terminal.outcome import Session

DEFAULT_SERVERS: Final = "127.0.0.1:9092"
COMMON: Final = "Common options"

ALIASES: Final = {"bootstrap-server": "bootstrap-servers"}
"""Spellings of Kafka's own tools that are understood as well."""


def repeated(*names: str, metavar: str, help: str, **more: Any) -> Any:
    """An option that can be given several times."""
    return typer.Option(*names, metavar=metavar, help=f"{help}; repeat it for more.", **more)


def _name(metavar: str, help: str, known: completion.Completer | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=known)


def _reporting(name: str, attribute: str, help: str) -> Any:
    """A flag that the report of an error needs as well. Shell completion has no session."""

    def remember(context: typer.Context, value: bool) -> bool:
        if isinstance(context.obj, Session):
            setattr(context.obj, attribute, value)
        return value

    return typer.Option(name, help=help, callback=remember, is_eager=True, rich_help_panel=COMMON)


NewTopic = Annotated[str, _name("TOPIC", "The topic's name.")]
Topic = Annotated[str, _name("TOPIC", "The topic's name.", completion.topics)]
Topics = Annotated[list[str], _name("TOPIC", "One topic or more.", completion.topics)]
Group = Annotated[str, _name("GROUP", "The group's name.", completion.groups)]
Groups = Annotated[list[str], _name("GROUP", "One group or more.", completion.groups)]

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,…",
        envvar="MILLSTREAM_BOOTSTRAP_SERVERS",
        help="Where the brokers listen.",
        callback=decide_connection,
        rich_help_panel=COMMON,
    ),
]
AsJson = Annotated[bool, _reporting("--json", "as_json", "Print JSON, for scripts.")]
Debug = Annotated[bool, _reporting("--debug", "debug", "Show the traceback of an error.")]
_PROPERTY: Final = repeated(
    "--property", metavar="NAME=VALUE", help="A client setting under Kafka's name", rich_help_panel=COMMON
)
Properties = Annotated[list[str] | None, _PROPERTY]
_CommandConfig = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="Client settings from a file, such as Kafka's client.properties: TLS, logins, the brokers.",
        is_eager=True,
        rich_help_panel=COMMON,
    ),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="The cluster, as 'millstream context add' has named it; else MILLSTREAM_CONTEXT.",
        autocompletion=completion.contexts,
        is_eager=True,
        rich_help_panel=COMMON,
    ),
]
Commands = Mapping[str, Callable[..., Any]]
"""The commands of a group, by name."""
_SHARED: Final = {"as_json": AsJson, "debug": Debug}
_CONNECTION: Final = {"command_config": _CommandConfig, "context_name": ContextName}
"""Options of every command with brokers, which ``decide_connection`` reads."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Settings of the command's client."""

    properties: Annotated[tuple[str, ...], _PROPERTY] = ()


@dataclass(frozen=True, slots=True)
class Common:
    """The options of every command that talks to brokers."""

    servers: Servers = DEFAULT_SERVERS
    as_json: AsJson = False
    debug: Debug = False


def flat(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command for typer, in which each parameter that is a dataclass is replaced by its fields.

    A field is the option that its annotation declares, or its metadata: ``names``, ``choices`` and further
    arguments of ``typer.Option``. A tuple is an option that can be repeated. The function's own parameters
    come first, then the groups in their order. Where there are brokers, --command-config and --context are
    added.
    """
    parameters = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: each.annotation for name, each in parameters.items() if is_dataclass(each.annotation)
    }
    own = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in parameters.items()
        if name not in groups
    ]

    def command(**values: Any) -> Any:
        for name in _CONNECTION:
            values.pop(name, None)  # decide_connection has read them
        for name, group in groups.items():
            given = {each.name: values.pop(each.name) for each in fields(group)}
            repeatable = {each.name for each in fields(group) if each.default == ()}
            values[name] = group(**given | {each: tuple(given[each] or ()) for each in repeatable})
        return function(**values)

    grouped = [_parameter(each, group) for group in groups.values() for each in fields(group)]
    if any(each.name == "servers" for each in (*own, *grouped)):
        kind = inspect.Parameter.KEYWORD_ONLY
        grouped += [
            inspect.Parameter(name, kind, default=None, annotation=option)
            for name, option in _CONNECTION.items()
        ]
    command.__signature__ = inspect.Signature([*own, *grouped])  # type: ignore[attr-defined]
    return command


def _parameter(field: Field[Any], group: type[Any]) -> inspect.Parameter:
    hint = _SHARED.get(field.name) or get_type_hints(group, include_extras=True)[field.name]
    if field.metadata:
        declared = dict(field.metadata)
        known = completion.words(*declared.pop("choices", ()))
        hint = Annotated[hint, typer.Option(*declared.pop("names"), autocompletion=known, **declared)]
    default = field.default
    if default == ():
        kind, option = get_args(hint)
        hint, default = Annotated[list[get_args(kind)[0]] | None, option], None  # type: ignore[misc]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
