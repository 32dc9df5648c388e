"""Agreeing on versions, with brokers that are newer, older or strange."""

from __future__ import annotations

import pytest

from millstream.errors import CorruptMessage, ErrorCode, MillstreamError, UnsupportedVersionError
from millstream.wire.frames import encode_response
from millstream.wire.messages.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from millstream.wire.messages.fetch import FETCH
from millstream.wire.messages.metadata import DESCRIBE_CLUSTER, METADATA
from millstream.wire.versions import BrokerVersions, Negotiation


def answer(version: int, code: int, *keys: tuple[int, int, int]) -> memoryview:
    response = ApiVersionsResponse(
        error_code=code,
        api_keys=[ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in keys],
    )
    return memoryview(b"".join(encode_response(response, version, 7))[4:])


def test_highest_common_version() -> None:
    versions = BrokerVersions({METADATA.key: (0, 9), FETCH.key: (0, 99)})
    assert versions.choose(METADATA) == 9
    assert versions.choose(FETCH) == FETCH.max_version
    assert versions.choose(METADATA, max_version=5) == 5


def test_nothing_in_common_names_the_api_and_both_ranges() -> None:
    versions = BrokerVersions({FETCH.key: (0, 3)}, "broker 1 at host:9092")
    with pytest.raises(
        UnsupportedVersionError, match=r"broker 1 at host:9092 speaks Fetch versions 0 to 3.*4 to 18"
    ):
        versions.choose(FETCH)
    with pytest.raises(UnsupportedVersionError, match="does not have the API DescribeCluster"):
        versions.choose(DESCRIBE_CLUSTER)


def test_a_broker_that_knows_our_version() -> None:
    negotiation = Negotiation("1.0")
    assert negotiation.version == API_VERSIONS.max_version
    assert negotiation.request().client_software_name == "millstream"
    correlation_id, versions = negotiation.receive(answer(negotiation.version, 0, (3, 0, 12)))
    assert correlation_id == 7
    assert versions is not None and versions.choose(METADATA) == 12


@pytest.mark.parametrize(
    ("theirs", "expected"), [((18, 0, 2), 2), ((18, 0, 0), 0), ((18, 0, 4), 0), ((3, 0, 1), 0)]
)
def test_an_older_broker_is_asked_again_with_what_it_knows(
    theirs: tuple[int, int, int], expected: int
) -> None:
    negotiation = Negotiation("1.0")
    _, versions = negotiation.receive(answer(0, ErrorCode.UNSUPPORTED_VERSION, theirs))
    assert versions is None
    assert negotiation.version == expected
    _, versions = negotiation.receive(answer(expected, 0, (3, 0, 5)))
    assert versions is not None and versions.ranges == {3: (0, 5)}


def test_a_broker_that_refuses_everything() -> None:
    negotiation = Negotiation("1.0")
    negotiation.receive(answer(0, ErrorCode.UNSUPPORTED_VERSION))
    with pytest.raises(UnsupportedVersionError, match="refuses every version"):
        negotiation.receive(answer(0, ErrorCode.UNSUPPORTED_VERSION))


def test_errors_and_nonsense_are_errors() -> None:
    with pytest.raises(MillstreamError, match="does not say"):
        Negotiation("1.0").receive(answer(4, ErrorCode.INVALID_REQUEST))
    with pytest.raises(CorruptMessage, match="no API at all"):
        Negotiation("1.0").receive(answer(4, 0))
    with pytest.raises(CorruptMessage):
        Negotiation("1.0").receive(memoryview(b"\0\0"))
