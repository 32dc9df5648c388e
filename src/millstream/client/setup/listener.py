"""Finds out why a broker closed a connection without a word: it may speak TLS, or not, or want a login.

A broker cannot say so itself: to a TLS listener a plain request is noise, and the reverse. So after such an
end the address is asked once, on another thread, in the ways that the settings do not say.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.client.cluster import BrokerInfo
from millstream.client.setup.security import ClientSecurity
from millstream.errors import CorruptMessage, ErrorCode
from millstream.net.reactor import Reactor
from millstream.wire.frames import decode_response, encode_request
from millstream.wire.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse

_T = TypeVar("_T")
_SECONDS: Final = 5.0
_PAUSE_MS: Final = 60_000
_MAX_BYTES: Final = 1 << 16
_VERSION: Final = 1
_CORRELATION: Final = 1


class ListenerCheck:
    """Asks an address, though not again and again; ``on_problem`` gets what is wrong, on the I/O thread."""

    def __init__(
        self, reactor: Reactor, security: ClientSecurity, on_problem: Callable[[BrokerInfo, str], None]
    ) -> None:
        self._reactor = reactor
        self._security = security
        self._on_problem = on_problem
        self._asked: BrokerInfo | None = None
        self._again_at_ms = 0

    def words(self, was_ready: bool) -> str:
        """What is known at once of a connection that the peer has closed."""
        is_unclear = not was_ready and not self._security.has_succeeded and self._security.tls is None
        hint = ": not a Kafka broker, or it requires TLS" if is_unclear else ""
        return f"the connection was closed{hint}"

    def begin(self, broker: BrokerInfo) -> None:
        """Ask, unless this was done less than a minute ago: each time takes two connections."""
        now_ms = self._reactor.now_ms()
        if broker == self._asked and now_ms < self._again_at_ms:
            return
        self._asked, self._again_at_ms = broker, now_ms + _PAUSE_MS

        def check() -> None:
            problem = find_problem((broker.host, broker.port), self._security.protocol)
            if problem is not None:
                self._reactor.call_threadsafe(lambda: self._on_problem(broker, problem))

        threading.Thread(target=check, name="millstream-listener-check", daemon=True).start()


def find_problem(address: tuple[str, int], protocol: str) -> str | None:
    """Say which security.protocol the listener wants instead of ``protocol``; None if that is not clear."""
    is_tls = protocol.endswith("SSL")
    for tls in (not is_tls, is_tls):
        mechanisms = _offers_login(address, tls=tls)
        wanted = ("SASL_" if mechanisms else "") + ("SSL" if tls else "PLAINTEXT")
        if mechanisms is None or wanted == protocol:
            continue
        login = f" and sasl.mechanism to {' or '.join(mechanisms)}" if mechanisms else ""
        return f"{_PROBLEMS[tls, is_tls]}: set security.protocol to {wanted}{login}"
    return None


_PROBLEMS: Final = {
    (True, False): "it requires TLS on this port",
    (False, True): "it does not speak TLS on this port",
    (True, True): "it requires a login on this port",
    (False, False): "it requires a login on this port",
}
"""By whether the listener has TLS, and whether the client tried it."""


def _offers_login(address: tuple[str, int], *, tls: bool) -> list[str] | None:
    """The SASL mechanisms that a Kafka broker offers there; None if no Kafka broker answers."""
    request = SaslHandshakeRequest(mechanism="-")
    try:
        with socket.create_connection(address, timeout=_SECONDS) as connection:
            stream = _TlsStream(connection, address[0]) if tls else connection
            stream.sendall(b"".join(map(bytes, encode_request(request, _VERSION, _CORRELATION, ""))))
            (size,) = struct.unpack(">i", _read(stream, 4))
            frame = _read(stream, size) if 4 <= size <= _MAX_BYTES else b""
        _, answer = decode_response(SaslHandshakeRequest, _VERSION, memoryview(frame))
    except (OSError, CorruptMessage):
        return None
    assert isinstance(answer, SaslHandshakeResponse), "the decoder returns the request's own response"
    return answer.mechanisms if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else []


class _TlsStream:
    """TLS over a blocking socket. ``wrap_socket`` would leave it open if the peer resets too early."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
        self._connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._exchange(self._tls.do_handshake)

    def sendall(self, data: bytes) -> None:
        self._exchange(lambda: self._tls.write(data))

    def recv(self, count: int) -> bytes:
        return self._exchange(lambda: self._tls.read(count))

    def _exchange(self, step: Callable[[], _T]) -> _T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._connection.sendall(self._outgoing.read())
                data = self._connection.recv(_MAX_BYTES)
                if not data:
                    raise ConnectionError("the connection was closed") from None
                self._incoming.write(data)
            else:
                self._connection.sendall(self._outgoing.read())
                return result


def _read(stream: socket.socket | _TlsStream, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = stream.recv(count - len(found))
        if not more:
            raise ConnectionError("the connection was closed")
        found += more
    return found
