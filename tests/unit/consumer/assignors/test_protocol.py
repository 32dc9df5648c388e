"""Subscriptions, assignments and user data as bytes: those of Kafka 4.1's own classes, and bad ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.protocol.consumer import metadata as kafka_python

from millstream.consumer.assignors import Assignment, StickyAssignor, Subscription
from millstream.consumer.assignors.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.consumer.assignors.user_data import (
    decode_cooperative,
    decode_sticky,
    encode_cooperative,
    encode_sticky,
)
from millstream.errors import CorruptMessage
from millstream.model import TopicPartition
from tests.unit.consumer.assignors.groups import partitions

FULL = Subscription(("t0", "t1"), b"\x00\x00\x00\x04", partitions("t0-0 t0-1"), 4, "a")

# What ConsumerProtocol of Apache Kafka 4.1.0 wrote for these.
JAVA_SUBSCRIPTIONS = [
    (Subscription(("t1", "t0")), "0003000000020002743000027431ffffffff00000000ffffffffffff"),
    (
        replace(FULL, topics=("t1", "t0"), owned_partitions=partitions("t0-1 t0-0")),
        "00030000000200027430000274310000000400000004000000010002743000000002000000000000000100000004000161",
    ),
]
JAVA_ASSIGNMENTS = [
    (
        Assignment(partitions("t0-0 t0-2 t1-1")),
        "00030000000200027430000000020000000000000002000274310000000100000001ffffffff",
    ),
    (
        Assignment(partitions("t1-1 t1-0 t1-2")),
        "0003000000010002743100000003000000010000000000000002ffffffff",
    ),
]


@pytest.mark.parametrize(("subscription", "java"), JAVA_SUBSCRIPTIONS)
def test_subscriptions_are_those_of_java(subscription: Subscription, java: str) -> None:
    assert encode_subscription(subscription).hex() == java
    assert decode_subscription(bytes.fromhex(java)) == replace(
        subscription,
        topics=tuple(sorted(subscription.topics)),
        owned_partitions=tuple(sorted(subscription.owned_partitions)),
    )


@pytest.mark.parametrize(("assignment", "java"), JAVA_ASSIGNMENTS)
def test_assignments_are_those_of_java(assignment: Assignment, java: str) -> None:
    assert encode_assignment(assignment).hex() == java
    assert decode_assignment(bytes.fromhex(java)) == assignment


def test_user_data_is_that_of_java() -> None:
    java = bytes.fromhex("000000010002743000000002000000000000000100000004")
    assert encode_sticky(partitions("t0-0 t0-1"), 4) == java
    assert decode_sticky(java) == (partitions("t0-0 t0-1"), 4)
    assert encode_cooperative(4) == bytes.fromhex("00000004")
    assert decode_cooperative(bytes.fromhex("00000004")) == 4


def test_a_sticky_member_sends_nothing_before_its_first_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.subscription_user_data(["t0"]) is None
    assignor.on_assignment(Assignment(partitions("t0-0 t0-1")), 4)
    assert assignor.subscription_user_data(["t0"]) == encode_sticky(partitions("t0-0 t0-1"), 4)
    assignor.on_assignment(Assignment(), 5)
    assert assignor.subscription_user_data(["t0"]) == bytes.fromhex("0000000000000005")


@pytest.mark.parametrize(
    ("version", "lost"),
    [
        (0, {"owned_partitions": (), "generation_id": -1, "rack_id": None}),
        (1, {"generation_id": -1, "rack_id": None}),
        (2, {"rack_id": None}),
        (3, {}),
    ],
)
def test_older_versions_lack_what_they_do_not_know(version: int, lost: dict[str, object]) -> None:
    data = encode_subscription(FULL, version)
    assert data[:2] == version.to_bytes(2, "big")
    expected = replace(FULL, **lost)  # type: ignore[arg-type]
    assert decode_subscription(data) == expected
    assert decode_subscription(data + b"trailing") == expected
    assert decode_subscription(memoryview(data), "static").group_instance_id == "static"


def test_versions_from_the_future_are_read_as_far_as_known() -> None:
    newer = (9).to_bytes(2, "big")
    assert decode_subscription(newer + encode_subscription(FULL)[2:] + b"more") == FULL
    given = Assignment(partitions("t0-0"), b"user")
    assert decode_assignment(newer + encode_assignment(given)[2:] + b"more") == given


def test_an_empty_rack_is_no_rack_and_no_bytes_are_no_partitions() -> None:
    assert decode_subscription(encode_subscription(replace(FULL, rack_id=""))).rack_id is None
    assert decode_assignment(b"") == Assignment()


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff" + encode_subscription(FULL)[2:]])
def test_without_a_version_there_is_no_subscription(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decode_subscription(data)


def test_every_truncation_is_noticed() -> None:
    subscription = encode_subscription(FULL)
    assignment = encode_assignment(Assignment(partitions("t0-0 t1-3"), b"user"))
    for end in range(1, len(subscription)):
        with pytest.raises(CorruptMessage):
            decode_subscription(subscription[:end])
    for end in range(1, len(assignment)):
        with pytest.raises(CorruptMessage):
            decode_assignment(assignment[:end])


@given(st.binary(max_size=60))
@example(b"\x00\x00\x7f\xff\xff\xff")
@example(b"\x00\x03\x00\x00\x00\x01\xff\xff")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except CorruptMessage:
            continue
    decode_sticky(data)
    decode_cooperative(data)


names = st.text("abc.-_", min_size=1, max_size=5)
some_partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6).map(
    lambda found: tuple(sorted(found))
)
user_data = st.none() | st.binary(max_size=8)


@given(st.lists(names, max_size=4), user_data, some_partitions, st.integers(-1, 2**31 - 1), st.none() | names)
def test_subscriptions_come_back(
    topics: list[str],
    user: bytes | None,
    owned: tuple[TopicPartition, ...],
    generation: int,
    rack: str | None,
) -> None:
    subscription = Subscription(tuple(sorted(topics)), user, owned, generation, rack)
    assert decode_subscription(encode_subscription(subscription)) == subscription
    theirs = kafka_python.ConsumerProtocolSubscription.decode(encode_subscription(subscription))
    assert list(theirs.topics) == sorted(topics)
    assert theirs.generation_id == generation


@given(some_partitions, user_data, st.integers(-1, 2**31 - 1))
def test_assignments_and_user_data_come_back(
    given_partitions: tuple[TopicPartition, ...], user: bytes | None, generation: int
) -> None:
    assignment = Assignment(given_partitions, user)
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_sticky(encode_sticky(given_partitions, generation)) == (given_partitions, generation)
    assert decode_sticky(encode_sticky(given_partitions, generation)[:-4]) == (given_partitions, -1)
    assert decode_cooperative(encode_sticky(given_partitions, generation)) == generation
