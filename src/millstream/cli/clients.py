"""Admin and Producer clients, made from the options of a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.cli.connection import for_client, override
from millstream.cli.properties import read_properties
from millstream.terminal.broker_check import require_broker
from millstream.terminal.outcome import UsageError, replace_settings
from millstream.terminal.outcome import client_settings as given_settings

if TYPE_CHECKING:
    from millstream.admin import Admin
    from millstream.config import ClientConfig
    from millstream.producer import Producer


def open_admin(servers: str) -> Admin:
    """Connect an Admin; raises CommandError when no broker answers."""
    require_broker(servers)
    from millstream.admin import Admin

    return Admin({"client.id": "millstream-cli", **broker_settings(servers)})


def broker_settings(servers: str) -> dict[str, object]:
    """How to reach the brokers: what every client takes of the settings that were given."""
    from millstream.config import AdminConfig

    return {**for_client(AdminConfig, given_settings()), "bootstrap.servers": servers}


def open_producer(servers: str, properties: Mapping[str, str], defaults: Mapping[str, object]) -> Producer:
    """Connect a Producer; raises CommandError when no broker answers."""
    require_broker(servers)
    from millstream.producer import Producer

    return Producer(client_settings(servers, properties, defaults))


def client_settings(
    servers: str, properties: Mapping[str, str], defaults: Mapping[str, object]
) -> dict[str, Any]:
    """A client's settings under Kafka's names: what the user typed overrides ``defaults``."""
    return {"client.id": "millstream-cli", **defaults, **properties, "bootstrap.servers": servers}


def client_properties(
    texts: Iterable[str], instead: Mapping[str, str], config: type[ClientConfig]
) -> dict[str, str]:
    """Read the values of ``--property``, and add those of the file and context that such a client has.

    ``config``: the settings of the client. Refuses settings that have an option of their own.

    ``instead`` maps these settings to the hint in the error: they would be overridden in silence.
    """
    found = {name.replace("_", "."): value for name, value in read_properties(texts, "--property").items()}
    for name in found:
        hint = {"bootstrap.servers": "use --bootstrap-servers", **instead}.get(name)
        if hint is not None:
            raise UsageError(f"--property {name} cannot be given here: {hint}")
    before = given_settings()
    replace_settings(override(before, found))
    shared = {name: value for name, value in before.items() if name not in instead}
    return override(for_client(config, shared), found)
