"""SASL: this broker asks nobody who they are, and says so to those who offer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ErrorCode
from millstream.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.broker.server import RequestContext

_NO_SASL = "the embedded broker has no authentication yet: set security.protocol to PLAINTEXT"


def handle_sasl_handshake(
    broker: Broker, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """No mechanism is offered; Kafka's error for a handshake on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def handle_sasl_authenticate(
    broker: Broker, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Tokens are not looked at."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b""
    )
