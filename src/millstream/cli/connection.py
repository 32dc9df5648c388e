"""Decides which brokers a command talks to, and with which settings.

Typed options override ``--command-config FILE``, and this overrides the context. A context is the one of
``--context``, else of MILLSTREAM_CONTEXT, else the one that ``context use`` has chosen. Its login must not
reach a cluster that it was not made for: only a typed ``--context`` is combined with other brokers or a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from millstream.cli.contexts import ClusterContext, read_contexts
from millstream.terminal.outcome import Session, UsageError

if TYPE_CHECKING:
    from millstream.config import ClientConfig

_SERVERS: Final = "bootstrap.servers"
_LOGIN: Final = frozenset({"sasl_jaas_config", "sasl_username", "sasl_password"})
"""Settings that say together who logs in: one of them replaces all."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How a command reaches its brokers."""

    servers: str
    settings: Mapping[str, str] = field(repr=False)
    """Client settings under Kafka's names; may hold secrets."""
    context: str
    """The context that names these brokers; empty if none does."""


def decide_connection(context: typer.Context, servers: str) -> str:
    """Keep the settings for the command's clients, and return its brokers.

    A callback: --command-config and --context are eager, so they are known here.
    """
    if not isinstance(context.obj, Session):  # shell completion has no session
        return servers
    found = connection_of(context, servers)
    context.obj.client.update(found.settings)
    context.obj.context = found.context
    return found.servers


def connection_of(context: typer.Context, servers: str) -> Connection:
    """Read the file and the context that are named. ``servers``: typed, the environment's, or the default."""
    source = context.get_parameter_source("servers")
    path = context.params.get("command_config")
    from_file = read_command_config(path) if path else {}
    in_file = from_file.pop(_SERVERS, "")
    typed = servers if source is not None and source.name == "COMMANDLINE" else in_file
    name = _context_name(context)
    if not name and not typed:
        name = os.environ.get("MILLSTREAM_CONTEXT", "")
    contexts = None
    if name or not (typed or (source is not None and source.name == "ENVIRONMENT")):
        contexts = read_contexts()
        name = name or contexts.current
    if contexts is None or not name:
        return Connection(typed or servers, from_file, "")
    settings = context_settings(name, contexts.get(name))
    own = settings.pop(_SERVERS, "")
    return Connection(typed or own or servers, override(settings, from_file), "" if typed else name)


def context_settings(name: str, chosen: ClusterContext) -> dict[str, str]:
    """All settings of a context, with bootstrap.servers. Raises UsageError if its file cannot be read."""
    path = chosen.command_config
    from_file = read_command_config(path, f"context {name!r}: ") if path else {}
    found = override(from_file, chosen.settings)
    return {**found, _SERVERS: chosen.servers} if chosen.servers else found


def read_command_config(path: str, whose: str = "") -> dict[str, str]:
    """Read client settings in Java's syntax, such as Kafka's client.properties."""
    from millstream.security.properties import parse_properties

    try:
        return parse_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{whose}--command-config {path}: cannot read it: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{whose}--command-config {path}: {error}") from None


def override(settings: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Settings of two places: what ``by`` has counts, under whichever of its names."""
    names = {_name(each) for each in by}
    if names & _LOGIN:
        names |= _LOGIN
    return {**{each: value for each, value in settings.items() if _name(each) not in names}, **by}


def for_client(config: type[ClientConfig], settings: Mapping[str, str]) -> dict[str, Any]:
    """Leave out what belongs to other kinds of clients: one file may serve all."""
    from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig

    kinds = (AdminConfig, ConsumerConfig, ProducerConfig)
    return {
        name: value
        for name, value in settings.items()
        if config.knows(name) or not any(kind.knows(name) for kind in kinds)
    }


def _name(spelling: str) -> str:
    """The one name of a setting with several."""
    from millstream.config import AdminConfig

    name = spelling.replace(".", "_")
    return AdminConfig.aliases().get(name, name)


def _context_name(context: typer.Context) -> str:
    """The context that was typed, before or after the command; empty for none."""
    return str(context.params.get("context_name") or context.find_root().params.get("context_name") or "")
