"""Handles SASL requests: refuses them, because this broker has no authentication yet."""

from __future__ import annotations

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.services import Services
from millstream.errors import ErrorCode
from millstream.wire.messages.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_NO_SASL = "the embedded broker has no authentication yet: set security.protocol to PLAINTEXT"


@handles(SASL_HANDSHAKE, note="no authentication yet: no mechanisms")
def sasl_handshake(
    broker: Services, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Offer no mechanism, with Kafka's error for a handshake on a listener without SASL."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


@handles(SASL_AUTHENTICATE, note="no authentication yet: refused")
def sasl_authenticate(
    broker: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse authentication, and say what to do."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NO_SASL, auth_bytes=b""
    )
