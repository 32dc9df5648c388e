"""Checks that a broker listens, before a client tries: clients would keep retrying in silence.

A wrong port, a web server or a TLS listener accepts the connection and never answers as a broker does.
"""

from __future__ import annotations

import logging
import socket
import struct
import sys
from typing import Final

from millstream.client.setup.listener import find_problem
from millstream.settings import Address, read_addresses
from millstream.terminal.outcome import CommandError, UsageError, client_settings, context_used, warn
from millstream.terminal.output import say

_SECONDS: Final = 5.0
"""How long connecting may take, and an answer before the user is told; as long again, and it is an error."""
_CORRELATION: Final = 0x6D696C6C
_API_VERSIONS: Final = struct.pack(">hhih", 18, 0, _CORRELATION, -1)
"""ApiVersions version 0, which every broker answers, even before authentication."""
_PRODUCER_LOG: Final = "millstream.producer"
"""Logs undelivered records. Commands report those themselves."""


class NotABrokerError(OSError):
    """Something listens there that is not a Kafka broker."""


class SilentPortError(NotABrokerError):
    """Something accepts connections there and does not answer."""


def require_broker(servers: str) -> None:
    """Raise CommandError unless a broker answers at one of the addresses.

    A script fails at once, and a newcomer who forgot to start the broker reads how to start it.
    """
    addresses = typed_addresses(servers)
    logging.basicConfig(level=logging.WARNING, handlers=[_ClientWarnings()])
    reason = ""
    for address in addresses:
        try:
            probe(address)
        except SilentPortError as error:
            reason = str(error.strerror)
        except NotABrokerError as error:
            reason = str(error.strerror)
            if problem := find_problem(address, "PLAINTEXT"):
                raise CommandError(
                    f"the broker at {address}: {problem}, in a file for --command-config"
                ) from None
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
        else:
            return
    if name := context_used():
        raise CommandError(
            f"no broker answers at {servers} ({reason}), which the context {name!r} names: name another with "
            "--context or --bootstrap-servers"
        )
    raise CommandError(
        f"no broker answers at {servers} ({reason}): start one with 'millstream broker', "
        "or name another with --bootstrap-servers"
    )


def typed_addresses(servers: str) -> tuple[Address, ...]:
    """Read ``--bootstrap-servers``; raises UsageError."""
    try:
        return read_addresses(servers)
    except ValueError as error:
        raise UsageError(f"--bootstrap-servers {servers!r}: {error}") from None


def probe(address: Address) -> None:
    """Return when a broker answers; raises OSError otherwise.

    Of a secured listener only the port is tried: the client itself says best what is wrong with the rest.
    """
    if client_settings().get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        socket.create_connection(address, timeout=_SECONDS).close()
        return
    with socket.create_connection(address, timeout=_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        try:
            connection.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            say(f"{address} is slow to answer; Ctrl-C ends")
        try:
            answer = _read(connection, 8)
        except TimeoutError:
            reason = (
                f"it accepts connections and says nothing for {2 * _SECONDS:g} s: no Kafka broker, or stuck"
            )
            raise SilentPortError(None, reason) from None
    if struct.unpack(">ii", answer)[1] != _CORRELATION:
        raise NotABrokerError(None, "not a Kafka broker, or it requires TLS")


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise NotABrokerError(None, "connection closed: not a Kafka broker, or it requires TLS")
        found += more
    return found


class _ClientWarnings(logging.Handler):
    """Prints warnings of clients as the command's own. Clients raise what they log as an error."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:  # a bug: print the traceback
            print(logging.Formatter().format(record), file=sys.stderr, flush=True)
        elif record.levelno == logging.WARNING and not record.name.startswith(_PRODUCER_LOG):
            warn(record.getMessage())
