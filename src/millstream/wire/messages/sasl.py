"""Authentication (SASL): the handshake and the exchange of tokens."""

from __future__ import annotations

from millstream.wire import apis
from millstream.wire.schema import Request, Response, array, data, int16, int64, string


class SaslHandshakeRequest(Request, api=apis.SASL_HANDSHAKE):
    """Choose a mechanism to authenticate with."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, api=apis.SASL_HANDSHAKE):
    """The mechanisms that the broker offers."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())


class SaslAuthenticateRequest(Request, api=apis.SASL_AUTHENTICATE):
    """One step of the exchange, opaque to the protocol."""

    auth_bytes: bytes = data()


class SaslAuthenticateResponse(Response, api=apis.SASL_AUTHENTICATE):
    """The broker's side of the step, and how long the session lasts at the end."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64("1+", default=0)
