"""Clients for commands: made from the options that were typed, and refused at once where nobody listens."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from millstream.settings import read_addresses
from millstream.terminal.greeting import StrangerError, greet
from millstream.terminal.outcome import CommandError, UsageError, warn
from millstream.terminal.properties import read_properties

if TYPE_CHECKING:
    from millstream.admin import Admin
    from millstream.producer import Producer

_REPORTED: Final = "millstream.producer"
"""Whose warnings are of records that were not delivered: those the command reports."""


def open_admin(servers: str) -> Admin:
    """Connect an Admin."""
    require_broker(servers)
    from millstream.admin import Admin

    return Admin({"bootstrap.servers": servers, "client.id": "millstream-cli"})


def open_producer(servers: str, properties: Mapping[str, str], defaults: Mapping[str, object]) -> Producer:
    """Connect a Producer. ``properties`` were typed and go before ``defaults``."""
    require_broker(servers)
    from millstream.producer import Producer

    return Producer(settings(servers, properties, defaults))


def settings(servers: str, properties: Mapping[str, str], defaults: Mapping[str, object]) -> dict[str, Any]:
    """Put a client's settings together, under Kafka's names."""
    return {"client.id": "millstream-cli", **defaults, **properties, "bootstrap.servers": servers}


def client_properties(texts: Iterable[str], instead: Mapping[str, str]) -> dict[str, str]:
    """Read what was typed as ``--property``. What the command has words of its own for is refused with them.

    ``instead`` says which: it would be overruled by them, or break what they promise, in silence.
    """
    found = {name.replace("_", "."): value for name, value in read_properties(texts, "--property").items()}
    for name in found:
        hint = {"bootstrap.servers": "use --bootstrap-servers", **instead}.get(name)
        if hint is not None:
            raise UsageError(f"--property {name} cannot be given here: {hint}")
    return found


def require_broker(servers: str) -> None:
    """Raise at once when no address has a broker: the clients themselves would go on trying.

    A script gets its answer, and a newcomer who forgot to start the broker is told how to.
    """
    try:
        addresses = read_addresses(servers)
    except ValueError as error:
        raise UsageError(f"--bootstrap-servers {servers!r}: {error}") from None
    _show_warnings()
    reason = ""
    for address in addresses:
        try:
            greet(address)
        except StrangerError as error:
            reason = str(error.strerror)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        else:
            return
    raise CommandError(
        f"no broker answers at {servers} ({reason}): start one with 'millstream broker', "
        "or name another with --bootstrap-servers"
    )


def _show_warnings() -> None:
    """Let what the clients log as warnings look like the command's own."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Warnings()])


class _Warnings(logging.Handler):
    """Says what clients warn of. What they call an error they raise, too, and the command says it then."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:  # a defect: all there is to know of it
            print(logging.Formatter().format(record), file=sys.stderr, flush=True)
        elif record.levelno == logging.WARNING and not record.name.startswith(_REPORTED):
            warn(record.getMessage())
