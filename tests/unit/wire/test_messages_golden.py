"""Messages that kio does not have, against bytes that Kafka 4.1's own classes wrote; and nothing left out."""

from __future__ import annotations

import pytest

from millstream.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.wire.schema import Message
from tests.unit.wire.message_values import all_messages, carried, versions_of
from tests.unit.wire.test_messages import PROVEN

OFFSET = OffsetCommitValue(
    offset=123456789012,
    leader_epoch=7,
    metadata="cyclé",
    commit_timestamp=1700000000123,
    expire_timestamp=1700000999000,
    topic_id=bytes(range(16)),
)
EMPTY_OFFSET = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)
MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="static",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=300000,
    session_timeout=45000,
    subscription=b"\1\2\3",
    assignment=b"",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=4,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1700000000123,
    members=[MEMBER],
)
EMPTY_GROUP = GroupMetadataValue(
    protocol_type="consumer", generation=0, protocol=None, leader=None, members=[]
)

GOLDEN: list[tuple[Message, int, str]] = [
    (
        OffsetCommitKey(group="loaders", topic="orders", partition=3),
        0,
        "00076c6f616465727300066f726465727300000003",
    ),
    (OFFSET, 0, "0000001cbe991a1400066379636cc3a90000018bcfe5687b"),
    (OFFSET, 1, "0000001cbe991a1400066379636cc3a90000018bcfe5687b0000018bcff4a658"),
    (OFFSET, 2, "0000001cbe991a1400066379636cc3a90000018bcfe5687b"),
    (OFFSET, 3, "0000001cbe991a140000000700066379636cc3a90000018bcfe5687b"),
    (
        OFFSET,
        4,
        "0000001cbe991a1400000007076379636cc3a90000018bcfe5687b010010000102030405060708090a0b0c0d0e0f",
    ),
    (EMPTY_OFFSET, 4, "0000000000000005ffffffff01000000000000000900"),
    (GroupMetadataKey(group="loaders"), 0, "00076c6f6164657273"),
    (
        GROUP,
        0,
        (
            "0008636f6e73756d657200000004000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31"
            "0000afc80000000301020300000000"
        ),
    ),
    (
        GROUP,
        1,
        (
            "0008636f6e73756d657200000004000572616e676500036d2d310000000100036d2d31000163000a2f3132372e302e302e31"
            "000493e00000afc80000000301020300000000"
        ),
    ),
    (
        GROUP,
        2,
        (
            "0008636f6e73756d657200000004000572616e676500036d2d310000018bcfe5687b0000000100036d2d31000163000a2f31"
            "32372e302e302e31000493e00000afc80000000301020300000000"
        ),
    ),
    (
        GROUP,
        3,
        (
            "0008636f6e73756d657200000004000572616e676500036d2d310000018bcfe5687b0000000100036d2d3100067374617469"
            "63000163000a2f3132372e302e302e31000493e00000afc80000000301020300000000"
        ),
    ),
    (
        GROUP,
        4,
        (
            "09636f6e73756d6572000000040672616e6765046d2d310000018bcfe5687b02046d2d310773746174696302630b2f313237"
            "2e302e302e31000493e00000afc804010203010000"
        ),
    ),
    (EMPTY_GROUP, 4, "09636f6e73756d6572000000000000ffffffffffffffff0100"),
]


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    GOLDEN,
    ids=[f"{type(message).__name__}-{version}-{len(text)}" for message, version, text in GOLDEN],
)
def test_bytes_are_those_of_kafka(message: Message, version: int, expected: str) -> None:
    message = carried(message, version)
    assert message.encode(version).hex() == expected
    assert type(message).decode(bytes.fromhex(expected), version) == message


def test_every_message_is_proven_in_every_version() -> None:
    golden = {(type(message), version) for message, version, _ in GOLDEN}
    proven = golden | {(message, version) for message in PROVEN for version in versions_of(message)}
    declared = {(message, version) for message in all_messages() for version in versions_of(message)}
    assert proven == declared
