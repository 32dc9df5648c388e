"""Requests and responses as they cross a connection: a size, a header and a body.

A frame is what follows the four bytes of its size. Encoders return chunks to be sent in order, starting with
the size. Large record payloads are chunks of their own, exactly as they were given: they are not copied.

Headers have two forms. In flexible versions (KIP-482) they end in tagged fields, of which none exist yet; the
client id keeps its old encoding. Responses to ApiVersions always have the old form, because the client may
not know the broker's versions yet.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from millstream.errors import CorruptMessage, UnsupportedVersionError
from millstream.wire import apis
from millstream.wire.decoders import skip_tags
from millstream.wire.faults import EncodeError
from millstream.wire.messages.api_versions import API_VERSIONS
from millstream.wire.schema import Request, Response

_SIZE: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_SIZED_REQUEST_HEADER: Final = struct.Struct(">ihhih")
_SIZED_RESPONSE_HEADER: Final = struct.Struct(">ii")

_SHORT: Final = 8 * 1024
"""A payload of at most so many bytes is joined with what surrounds it."""
LARGEST_FRAME: Final = 0x7FFF_FFFF
"""In bytes, without the size itself."""

_UNSUPPORTED_VERSION: Final = b"\0\x23"
"""The error code with which a broker answers an ApiVersions request that is too new for it."""


class RequestHeader(NamedTuple):
    """The API and version of a request, the correlation id that its response repeats, and the client id."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


class UnknownRequestError(UnsupportedVersionError):
    """The header is well formed, but its API or version is not supported here."""

    def __init__(self, header: RequestHeader) -> None:
        api = apis.find(header.api_key)
        what = f"{api.name} has versions {api.min_version} to {api.max_version}" if api else "no such API"
        super().__init__(f"API {header.api_key} version {header.version} is not supported: {what}")
        self.args = (header,)
        self.header = header


# -------------------------------------------------------------------------------------------- encoding


def encode_request(request: Request, version: int, correlation_id: int, client_id: str | None) -> list[Any]:
    """Return the chunks of one framed request. Raises EncodeError if a value does not fit its field."""
    api = request.api
    if client_id is None:
        buffer = bytearray(_SIZED_REQUEST_HEADER.pack(0, api.key, version, correlation_id, -1))
    else:
        client = client_id.encode()
        if len(client) > 0x7FFF:
            raise EncodeError(f"the client id has {len(client)} bytes: at most {0x7FFF} fit")
        buffer = bytearray(_SIZED_REQUEST_HEADER.pack(0, api.key, version, correlation_id, len(client)))
        buffer += client
    if version >= api.flexible:
        buffer.append(0)
    return _framed(buffer, request.encode_into(buffer, version))


def encode_response(response: Response, version: int, correlation_id: int) -> list[Any]:
    """Return the chunks of one framed response. Raises EncodeError if a value does not fit its field."""
    buffer = bytearray(_SIZED_RESPONSE_HEADER.pack(0, correlation_id))
    api = response.api
    if version >= api.flexible and api is not API_VERSIONS:
        buffer.append(0)
    return _framed(buffer, response.encode_into(buffer, version))


def _framed(buffer: bytearray, payloads: list[tuple[int, Any]]) -> list[Any]:
    """Write the size to the front of the buffer, and split the buffer where payloads belong."""
    size = len(buffer) - 4 + sum([len(payload) for _, payload in payloads])
    if size > LARGEST_FRAME:
        raise EncodeError(f"a frame of {size} bytes is larger than the protocol allows")
    _SIZE.pack_into(buffer, 0, size)
    if not payloads:
        return [buffer]
    start = 0
    chunks: list[Any] = []
    joined = bytearray()
    for position, payload in payloads:
        # What is short is copied: that is cheaper than another chunk.
        joined += buffer[start:position]
        if len(payload) <= _SHORT and isinstance(payload, bytes | memoryview):
            joined += payload
        else:
            chunks += (joined, payload)
            joined = bytearray()
        start = position
    joined += buffer[start:]
    return [*chunks, joined] if joined else chunks


# -------------------------------------------------------------------------------------------- decoding


def peek_api_key(frame: memoryview) -> int:
    """Return the API key of a request frame, which may be incomplete. Raises CorruptMessage."""
    if len(frame) < 2:
        raise CorruptMessage("a request frame ends inside its header")
    return int.from_bytes(frame[:2], "big", signed=True)


def decode_request(frame: memoryview) -> tuple[RequestHeader, Request]:
    """Read a request. Raises UnknownRequestError, with the header, for an unsupported API or version.

    Bytes after the request are ignored, as in Kafka.
    """
    header, position = _decode_request_header(frame)
    _, version, _, _ = header
    api = apis.find(header[0])
    if api is None or not api.min_version <= version <= api.max_version:
        raise UnknownRequestError(header)
    if version >= api.flexible:
        position = _skip_header_tags(frame, position)
    request, _ = api.request_type.decode_from(frame, position, version)
    return header, request


def _decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame, 0)
    except struct.error:
        raise CorruptMessage("a request frame ends inside its header") from None
    position = _REQUEST_HEADER.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise CorruptMessage(f"the client id claims {length} bytes, but {len(frame) - position} are left")
        client_id = frame[position:end].tobytes().decode("utf-8", "replace")
        position = end
    elif length != -1:
        raise CorruptMessage(f"the client id has the negative length {length}")
    return RequestHeader(api_key, version, correlation_id, client_id), position


def decode_response(request_type: type[Request], version: int, frame: memoryview) -> tuple[int, Response]:
    """Read the response to a request of this type and version; return its correlation id and the message.

    A broker that does not know our version of ApiVersions answers in version 0 with UNSUPPORTED_VERSION
    (KIP-511); this reads that answer too. Bytes after the response are ignored, as in Kafka.
    """
    api = request_type.api
    if len(frame) < 4:
        raise CorruptMessage("a response frame ends inside its header")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    position = 4
    if api is API_VERSIONS:
        if bytes(frame[4:6]) == _UNSUPPORTED_VERSION:
            version = 0
    elif version >= api.flexible:
        position = _skip_header_tags(frame, position)
    response, _ = api.response_type.decode_from(frame, position, version)
    return correlation_id, response


def _skip_header_tags(frame: memoryview, position: int) -> int:
    """Skip the tagged fields of a flexible header; none is defined yet."""
    if position < len(frame) and not frame[position]:
        return position + 1
    try:
        position, _ = skip_tags(frame, position, len(frame), Request.max_elements)
    except IndexError:
        raise CorruptMessage("a header ends inside its tagged fields") from None
    return position
