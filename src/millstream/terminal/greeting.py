"""Whether what listens at an address is a broker: asked before the clients do, who would keep trying.

A wrong port, a web server, or a listener that wants TLS takes the connection, and then nothing comes of it.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from millstream.settings import Address
from millstream.terminal.output import say

_SECONDS: Final = 5.0
_CORRELATION: Final = 0x6D696C6C
_HELLO: Final = struct.pack(">hhih", 18, 0, _CORRELATION, -1)
"""ApiVersions in its first version, which every broker understands, and answers before a login."""


class StrangerError(OSError):
    """Something listens there that is no broker."""


def greet(address: Address) -> None:
    """Return when a broker answers, or may yet. Raises OSError where nobody listens, or somebody else."""
    with socket.create_connection(address, timeout=_SECONDS) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.sendall(struct.pack(">i", len(_HELLO)) + _HELLO)
            answer = _read(connection, 8)
        except TimeoutError:
            say(f"{address} is slow to answer; Ctrl-C ends")
            return
    if struct.unpack(">ii", answer)[1] != _CORRELATION:
        raise StrangerError(None, "what listens there is no broker, or wants TLS, which is not supported yet")


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise StrangerError(None, "it hangs up: what listens there is no broker, or wants TLS")
        found += more
    return found
