"""Every message, in every version that we serve, against kio: encoded by one and decoded by the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from millstream.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millstream.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millstream.wire.messages.sasl import SaslAuthenticateRequest
from millstream.wire.schema import Message
from tests.unit.wire.kio_twins import assert_same, kio_instances, kio_read, kio_type, kio_write
from tests.unit.wire.message_values import api_messages, carried, instances, versions_of

PROVEN: list[type[Message]] = [
    *api_messages(),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]
few = settings(
    max_examples=8,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def name(message: type[Message]) -> str:
    return message.__name__


@pytest.mark.parametrize("message", PROVEN, ids=name)
@few
@given(draw=st.data())
def test_ours_is_read_by_kio_and_comes_back(message: type[Message], draw: st.DataObject) -> None:
    anything = draw.draw(instances(message))
    for version in versions_of(message):
        check_against_kio(carried(anything, version), version)


def check_against_kio(ours: Message, version: int) -> None:
    data = ours.encode(version)
    theirs, size = kio_read(kio_type(type(ours), version), data)
    assert size == len(data)
    assert_same(ours, theirs, version)
    assert kio_write(theirs) == data
    assert type(ours).decode(data, version) == ours


@pytest.mark.parametrize("message", PROVEN, ids=name)
@few
@given(draw=st.data())
def test_what_kio_makes_is_read_and_comes_back(message: type[Message], draw: st.DataObject) -> None:
    for version in versions_of(message):
        theirs: Any = draw.draw(kio_instances(kio_type(message, version)))
        data = kio_write(theirs)
        ours, end = message.decode_from(memoryview(data), 0, version)
        assert end == len(data)
        assert_same(ours, theirs, version)
        assert ours.encode(version) == data


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 126, 127, 128, 129, 16382, 16383, 16384, 16385])
@pytest.mark.parametrize("version", [1, 2])
def test_lengths_where_their_encoding_changes(version: int, length: int) -> None:
    """A compact length takes one byte up to 126 and two up to 16,382; numbers are packed singly up to 15."""
    topic = DescribableLogDirTopic(topic="t" * length, partitions=list(range(length)))
    check_against_kio(DescribeLogDirsRequest(topics=[topic]), version)
    few_bytes = [DescribableLogDirTopic(topic="", partitions=[]) for _ in range(length)]
    check_against_kio(DescribeLogDirsRequest(topics=few_bytes), version)
    check_against_kio(SaslAuthenticateRequest(auth_bytes=b"x" * length), version)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("length", [0, 126, 127, 128, 16382, 16383, 16384, 2_097_150, 2_097_151, 2_097_152])
def test_payloads_where_the_encoding_of_their_length_changes(version: int, length: int) -> None:
    partition = PartitionProduceData(index=0, records=bytes(length))
    topic = TopicProduceData(name="t", partition_data=[partition])
    check_against_kio(ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic]), version)
