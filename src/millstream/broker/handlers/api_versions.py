"""Handles ApiVersions: the APIs and versions that this broker supports."""

from __future__ import annotations

import re

from millstream.broker.dispatch import handles
from millstream.broker.request_context import RequestContext
from millstream.broker.services import Services
from millstream.errors import ErrorCode
from millstream.wire import apis
from millstream.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.wire.messages.produce import PRODUCE
from millstream.wire.messages.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from millstream.wire.schema import Api

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LOGIN = (SASL_HANDSHAKE, SASL_AUTHENTICATE)


@handles(API_VERSIONS)
def api_versions(
    broker: Services, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """List the APIs. From version 3 on the client must name its software (KIP-511)."""
    names = (request.client_software_name, request.client_software_version)
    if context.version >= 3 and not all(_SOFTWARE_NAME.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_supported(context))


def unsupported_version_response(context: RequestContext) -> ApiVersionsResponse:
    """Return the answer to an unknown version of ApiVersions; it is sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_supported(context))


def _supported(context: RequestContext) -> list[ApiVersion]:
    """List all APIs; those of the login only where there is one."""
    return [
        ApiVersion(api_key=api.key, min_version=_first_version(api), max_version=api.max_version)
        for api in apis.all_apis().values()
        if api not in _LOGIN or context.sasl is not None
    ]


def _first_version(api: Api) -> int:
    """Like Kafka 4, list unsupported old versions of Produce: librdkafka compresses only then.

    SaslHandshake is listed from 0, as Kafka does: older librdkafka (2.0, in kcat) logs in only then, with 1.
    """
    return 0 if api is PRODUCE else api.min_version
