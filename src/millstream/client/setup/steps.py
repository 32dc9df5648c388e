"""The steps of a new connection: agree on versions, then log in; and the login alone, to renew a session."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from millstream.client.cluster import BrokerInfo
from millstream.client.setup.exchange import Compute, Send, Steps
from millstream.client.setup.security import ClientSecurity
from millstream.errors import (
    AuthenticationError,
    ConfigError,
    CorruptMessage,
    ErrorCode,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from millstream.security.login import MSK_IAM, Login
from millstream.security.sasl.oauthbearer import REFUSAL_READ, encode_bearer, parse_refusal
from millstream.security.sasl.plain import encode_plain
from millstream.security.sasl.scram import MECHANISMS, ScramClient
from millstream.wire.frames import decode_response
from millstream.wire.messages.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from millstream.wire.versions import BrokerVersions, Negotiation

Ready = tuple[BrokerVersions, int]
"""The broker's versions, and how many milliseconds the session lasts; 0 without an end."""


def set_up(broker: BrokerInfo, software_version: str, security: ClientSecurity) -> Steps[Ready]:
    """Agree on the version of each API (KIP-511), and log in where the settings say so."""
    negotiation = Negotiation(software_version, str(broker))
    versions = None
    while versions is None:
        frame = yield Send(negotiation.request(), negotiation.version)
        _, versions = negotiation.receive(frame)
    lifetime_ms = 0
    if security.sasl is not None:
        lifetime_ms = yield from log_in(broker, versions, security)
    return versions, lifetime_ms


def log_in(broker: BrokerInfo, versions: BrokerVersions, security: ClientSecurity) -> Steps[int]:
    """Authenticate with SASL; return how many milliseconds the session lasts (KIP-368), or 0."""
    assert security.sasl is not None, "there is a login"
    try:
        login: Login = yield Compute(security.sasl.login)
    except ConfigError as error:
        raise AuthenticationError(f"{broker}: cannot log in: {error}") from error
    mechanism = "OAUTHBEARER" if login.mechanism == MSK_IAM else login.mechanism
    version = versions.choose(SASL_HANDSHAKE)
    frame = yield Send(SaslHandshakeRequest(mechanism=mechanism), version)
    _, offered = decode_response(SaslHandshakeRequest, version, frame)
    assert isinstance(offered, SaslHandshakeResponse), "the decoder returns the request's own response"
    _check_offer(broker, login.mechanism, offered)
    authenticate = _Authentication(broker, versions.choose(SASL_AUTHENTICATE), login)
    return (yield from _MECHANISMS[mechanism](authenticate, security))


def _check_offer(broker: BrokerInfo, mechanism: str, offered: SaslHandshakeResponse) -> None:
    if offered.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        names = ", ".join(offered.mechanisms) or "none"
        raise UnsupportedSaslMechanismError(
            f"{broker} does not offer sasl.mechanism {mechanism}: it offers {names}"
        )
    if offered.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{broker} expects no login on this port: set security.protocol to SSL or PLAINTEXT, or use the "
            "port of its SASL listener"
        )
    if offered.error_code:
        raise AuthenticationError(f"{broker} refused the SASL handshake with error {offered.error_code}")


class _Authentication:
    """The messages of one mechanism to one broker."""

    def __init__(self, broker: BrokerInfo, version: int, login: Login) -> None:
        self.broker = broker
        self.login = login
        self._version = version

    def send(self, message: bytes) -> Steps[tuple[bytes, int]]:
        """Send one message; return the broker's, and how long the session lasts."""
        frame = yield Send(SaslAuthenticateRequest(auth_bytes=message), self._version)
        _, answer = decode_response(SaslAuthenticateRequest, self._version, frame)
        assert isinstance(answer, SaslAuthenticateResponse), "the decoder returns the request's own response"
        if answer.error_code:
            raise self.refused(answer.error_message or f"error {answer.error_code}")
        return bytes(answer.auth_bytes), answer.session_lifetime_ms

    def refused(self, reason: str) -> SaslAuthenticationFailedError:
        """The error for a login that the broker refused; ``reason`` comes from it."""
        reason = re.sub(r"[^\x20-\x7E]+", " ", reason)[:300].strip().rstrip(".")
        name = self.login.username
        who = f"the user {name!r}" if name else "the token"
        return SaslAuthenticationFailedError(
            f"{self.broker} did not accept {who} with sasl.mechanism {self.login.mechanism}: {reason}"
        )


def _plain(to: _Authentication, security: ClientSecurity) -> Steps[int]:
    try:
        message = encode_plain(to.login.username, to.login.password)
    except ValueError as error:
        raise AuthenticationError(str(error)) from None
    _, lifetime_ms = yield from to.send(message)
    return lifetime_ms


def _scram(to: _Authentication, security: ClientSecurity) -> Steps[int]:
    mechanism, password = MECHANISMS[to.login.mechanism], to.login.password
    is_token = to.login.options.get("tokenauth", "").lower() == "true"
    extensions = {"tokenauth": "true"} if is_token else {}
    client = ScramClient(mechanism, to.login.username, secrets.token_hex(16), extensions)
    try:
        server_first, _ = yield from to.send(client.first())
        challenge = client.challenge(server_first)
        salted = yield Compute(
            lambda: security.salted(mechanism, password, challenge.salt, challenge.iterations)
        )
        server_final, lifetime_ms = yield from to.send(client.final(server_first, salted))
    except CorruptMessage as error:
        raise AuthenticationError(f"{to.broker}: {error}") from error
    try:
        client.verify(server_final)
    except SaslAuthenticationFailedError as error:
        raise to.refused(error.detail) from None
    return lifetime_ms


def _bearer(to: _Authentication, security: ClientSecurity) -> Steps[int]:
    tokens = security.tokens
    assert tokens is not None, "OAUTHBEARER has a source of tokens"
    host, login = to.broker.host, to.login
    token = yield Compute(lambda: tokens.token(host, login))
    try:
        message = encode_bearer(token.value, extensions={**login.extensions, **token.extensions})
    except ValueError as error:
        raise AuthenticationError(f"{to.broker}: {error}") from None
    try:
        refusal, lifetime_ms = yield from to.send(message)
        if refusal:
            yield from to.send(REFUSAL_READ)
            raise to.refused(parse_refusal(refusal))
    except SaslAuthenticationFailedError:
        tokens.forget(token)
        raise
    return lifetime_ms


_MECHANISMS: dict[str, Callable[[_Authentication, ClientSecurity], Steps[int]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _bearer,
}
