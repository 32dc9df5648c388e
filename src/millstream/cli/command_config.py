"""Reads ``--command-config FILE``: client settings in Java's syntax, such as Kafka's client.properties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.terminal.outcome import Session, UsageError

if TYPE_CHECKING:
    from millstream.config import ClientConfig

_SERVERS = "bootstrap.servers"


def read_command_config(context: typer.Context, path: str | None) -> str | None:
    """Keep the settings of the file for the command's clients.

    Its bootstrap.servers are the default of --bootstrap-servers.
    """
    if path is None or not isinstance(context.obj, Session):  # shell completion has no session
        return path
    from millstream.security.properties import parse_properties

    try:
        found = parse_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--command-config {path}: cannot read it: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--command-config {path}: {error}") from None
    if _SERVERS in found:
        context.default_map = {**(context.default_map or {}), "servers": found.pop(_SERVERS)}
    context.obj.client.update(found)
    return path


def for_client(config: type[ClientConfig], settings: dict[str, str]) -> dict[str, Any]:
    """Leave out what belongs to other kinds of clients: one file may serve all."""
    from millstream.config import AdminConfig, ConsumerConfig, ProducerConfig

    kinds = (AdminConfig, ConsumerConfig, ProducerConfig)
    return {
        name: value
        for name, value in settings.items()
        if config.knows(name) or not any(kind.knows(name) for kind in kinds)
    }
