"""Chooses the version of each API to use with a broker: the highest both sides know (KIP-35, KIP-511)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.errors import CorruptMessage, ErrorCode, UnsupportedVersionError, raise_for_code
from millstream.wire.frames import decode_response
from millstream.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.wire.schema import Api

SOFTWARE_NAME = "millstream"


class BrokerVersions:
    """The APIs and versions that one broker says it supports."""

    def __init__(self, ranges: Mapping[int, tuple[int, int]], broker: str = "the broker") -> None:
        self.ranges = dict(ranges)
        self._broker = broker

    @classmethod
    def from_keys(cls, keys: Iterable[ApiVersion], broker: str = "the broker") -> BrokerVersions:
        return cls({key.api_key: (key.min_version, key.max_version) for key in keys}, broker)

    def choose(self, api: Api, max_version: int | None = None) -> int:
        """Return the highest version that both sides know, and at most ``max_version`` if that is given."""
        ours = (api.min_version, api.client_max_version if max_version is None else max_version)
        theirs = self.ranges.get(api.key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"{self._broker} does not have the API {api.name}: it needs Kafka {api.since} or later"
            )
        version = min(ours[1], theirs[1])
        if version < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"{self._broker} speaks {api.name} versions {theirs[0]} to {theirs[1]}, "
                f"but versions {ours[0]} to {ours[1]} are needed"
            )
        return version


class Negotiation:
    """The first exchange on a connection: send ``request`` in ``version``, pass the answer to ``receive``."""

    def __init__(self, software_version: str, broker: str = "the broker") -> None:
        self.version = API_VERSIONS.max_version
        self._software_version = software_version
        self._broker = broker

    def request(self) -> ApiVersionsRequest:
        return ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=self._software_version
        )

    def receive(self, frame: memoryview) -> tuple[int, BrokerVersions | None]:
        """Return the correlation id and the broker's versions.

        None instead of the versions means: send the request again, in ``version``, which is lower now. A
        broker that does not know our version says so in the format of version 0, whatever was sent.
        """
        refused = int.from_bytes(frame[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
        if refused:
            self.version = self._lower_version(frame)
            return int.from_bytes(frame[:4], "big", signed=True), None
        correlation_id, response = decode_response(ApiVersionsRequest, self.version, frame)
        assert isinstance(response, ApiVersionsResponse), "the decoder returns the request's own response"
        raise_for_code(response.error_code, f"{self._broker} does not say which versions it supports")
        if not response.api_keys:
            raise CorruptMessage(f"{self._broker} says that it supports no API at all")
        return correlation_id, BrokerVersions.from_keys(response.api_keys, self._broker)

    def _lower_version(self, frame: memoryview) -> int:
        theirs = 0
        try:
            _, response = decode_response(ApiVersionsRequest, 0, frame)
            assert isinstance(response, ApiVersionsResponse), "the decoder returns the request's own response"
            ranges = BrokerVersions.from_keys(response.api_keys, self._broker).ranges
            _, theirs = ranges.get(API_VERSIONS.key, (0, 0))
        except CorruptMessage:  # some brokers refuse in another format: the error code is enough
            pass
        if self.version == 0:
            raise UnsupportedVersionError(f"{self._broker} refuses every version of {API_VERSIONS.name}")
        # A broker that names no lower version than the one it refused gets version 0, which all must know.
        return theirs if 0 <= theirs < self.version else 0
