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
_SASL = (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key)


@handles(API_VERSIONS)
def api_versions(
    broker: Services, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    """List the APIs. From version 3 on the client must name its software (KIP-511)."""
    names = (request.client_software_name, request.client_software_version)
    if context.version >= 3 and not all(_SOFTWARE_NAME.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=_supported())


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the answer to an unknown version of ApiVersions; it is sent in version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_supported())


def _supported() -> list[ApiVersion]:
    return [
        ApiVersion(api_key=api.key, min_version=_first_version(api), max_version=api.max_version)
        for api in apis.all_apis().values()
        if api.key not in _SASL
    ]


def _first_version(api: Api) -> int:
    """Like Kafka 4, list unsupported old versions of Produce: librdkafka compresses only then."""
    return 0 if api is PRODUCE else api.min_version
