"""Authentication (SASL): the handshake and the exchange of tokens."""

from __future__ import annotations

from millstream.wire.schema import Api, Request, Response, array, data, int16, int64, string

SASL_HANDSHAKE = Api(17, "SaslHandshake", 0, 1)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2, flexible=2)


class SaslHandshakeRequest(Request, api=SASL_HANDSHAKE):
    """Choose a mechanism to authenticate with."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, api=SASL_HANDSHAKE):
    """The mechanisms that the broker offers."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())


class SaslAuthenticateRequest(Request, api=SASL_AUTHENTICATE):
    """One step of the exchange, opaque to the protocol."""

    auth_bytes: bytes = data()


class SaslAuthenticateResponse(Response, api=SASL_AUTHENTICATE):
    """The broker's side of the step, and how long the session lasts at the end."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = data()
    session_lifetime_ms: int = int64("1+", default=0)
