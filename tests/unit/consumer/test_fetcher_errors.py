"""What goes wrong when fetching: who is told, what is tried again, and after how long."""

from __future__ import annotations

import pytest

from millstream.client.targets import Node
from millstream.consumer.fetching.events import MetadataNeeded, NewLeaders
from millstream.consumer.fetching.reasons import Retrying
from millstream.errors import (
    CorruptMessage,
    CorruptMessageError,
    ErrorCode,
    NetworkError,
    TopicAuthorizationFailedError,
)
from millstream.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tests.unit.consumer.fake_cluster import T0, topic_id
from tests.unit.consumer.fetch_world import answer, log_of, world_of

# -- errors


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
)
def test_a_partition_that_may_have_moved_asks_for_metadata_and_backs_off(code: ErrorCode) -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    answer(send, world, error_code=code)
    assert world.poll() == []
    assert MetadataNeeded(frozenset({"t"})) in world.events
    assert isinstance(world.fetcher.reasons()[T0], Retrying)
    assert world.fetcher.next_wake_ms(0) == 100
    world.now_ms = 100
    (send,) = world.poll()
    answer(send, world, error_code=code)
    world.poll()
    assert world.fetcher.next_wake_ms(100) == 300, "longer each time"
    assert len(world.read()) == 5


def test_errors_that_only_the_user_can_mend_are_raised() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    answer(send, world, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert world.poll() == []
    assert world.fetcher.ready()
    with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
        world.take()
    assert len(world.read()) == 5, "and it is tried again"


def test_a_broker_that_finds_its_log_corrupt_is_reported() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    answer(send, world, error_code=ErrorCode.CORRUPT_MESSAGE)
    with pytest.raises(CorruptMessageError, match="t-0 at offset 0"):
        world.take()


def test_an_unknown_server_error_is_tried_again() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    answer(send, world, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert world.take() == []
    assert len(world.read()) == 5


def test_a_newer_leader_that_a_broker_names_is_passed_on() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    world.wire.remove(send)
    data = PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        high_watermark=-1,
        aborted_transactions=None,
        records=None,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=4),
    )
    response = FetchResponse(
        responses=[FetchableTopicResponse(topic="", topic_id=topic_id("t"), partitions=[data])],
        node_endpoints=[NodeEndpoint(node_id=1, host="b", port=9)],
    )
    world.fetcher.receive(send.token, response, 0)
    (told,) = [event for event in world.fetcher.take_events() if isinstance(event, NewLeaders)]
    assert told.leaders == {T0: (1, 4)}
    assert [(broker.node_id, broker.host, broker.port) for broker in told.brokers] == [(1, "b", 9)]


def test_a_node_that_cannot_be_reached_is_tried_again_later() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    world.fail(send, NetworkError("gone"))
    assert world.poll() == []
    assert MetadataNeeded(frozenset({"t"})) in world.events
    reason = world.fetcher.reasons()[T0]
    assert isinstance(reason, Retrying) and (reason.node_id, reason.retry_at_ms) == (0, 100)
    world.now_ms = 100
    (send,) = world.poll()
    world.fail(send, ConnectionResetError())
    world.poll()
    assert world.fetcher.next_wake_ms(100) == 300
    assert len(world.read()) == 5


def test_an_answer_that_cannot_be_read_is_raised() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    world.fail(send, CorruptMessage("nonsense"))
    with pytest.raises(CorruptMessage, match="nonsense"):
        world.take()


def test_a_throttled_client_waits() -> None:
    world = world_of({T0: log_of(5)})
    (send,) = world.poll()
    response = world.cluster.answer(send)
    assert isinstance(response, FetchResponse)
    response.throttle_time_ms = 700
    world.fetcher.receive(send.token, response, 0)
    world.take()
    assert world.poll() == []
    assert world.fetcher.next_wake_ms(0) == 700


def test_session_errors_cost_no_time_unless_they_go_on() -> None:
    world = world_of({T0: log_of(5)})
    for expected in ([Node(0)], [], []):
        for send in list(world.wire) or world.poll():
            world.wire.clear()
            refused = FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, responses=[])
            world.fetcher.receive(send.token, refused, 0)
        assert [send.target for send in world.poll()] == expected
