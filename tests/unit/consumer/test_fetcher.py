"""Fetching: what is asked for, when, from whom, and how much of it waits in memory."""

from __future__ import annotations

import pytest

from millstream.config import ConsumerConfig
from millstream.consumer.fetch_events import LeadersTold, MetadataNeeded
from millstream.consumer.fetch_settings import FetchSettings, ResetStrategy
from millstream.consumer.reasons import AwaitingTurn, Buffered, CaughtUp, Fetching, Paused, Retrying
from millstream.consumer.sends import Node, Send
from millstream.errors import (
    CorruptMessage,
    CorruptMessageError,
    ErrorCode,
    NetworkError,
    TopicAuthorizationFailedError,
)
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog, World, topic_id, values

SETTINGS = FetchSettings(auto_offset_reset=ResetStrategy.EARLIEST)


def log_of(batches: int, size: int = 100, leader: int = 0) -> FakeLog:
    """Batches of one record each, with values of so many bytes."""
    log = FakeLog(leader=leader)
    for _ in range(batches):
        log.append(b"x" * size)
    return log


def world_of(
    logs: dict[TopicPartition, FakeLog], settings: FetchSettings = SETTINGS, nodes: int = 2
) -> World:
    """A consumer that stands at offset 0 of each partition, and has not fetched yet."""
    world = World(FakeCluster(logs, nodes), settings)
    world.fetcher.positions.assign(logs)
    for partition in logs:
        world.fetcher.positions.seek(partition, 0)
    return world


def built(send: Send, version: int = 18) -> FetchRequest:
    request = send.build(version)
    assert isinstance(request, FetchRequest)
    return request


def fetched(send: Send) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, one.partition, one.fetch_offset)
        for topic in built(send).topics
        for one in topic.partitions
    ]


def answer(send: Send, world: World, **fields: object) -> None:
    """Answer for partition 0 of topic t with these fields."""
    defaults: dict[str, object] = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 0,
        "aborted_transactions": None,
        "records": b"",
    }
    partitions = [PartitionData(**(defaults | fields))]  # type: ignore[arg-type]
    topic = FetchableTopicResponse(topic="", topic_id=topic_id("t"), partitions=partitions)
    world.wire.remove(send)
    world.fetcher.receive(send.token, FetchResponse(session_id=7, responses=[topic]), world.now_ms)


def test_the_request_carries_the_settings() -> None:
    settings = FetchSettings(
        fetch_min_bytes=11,
        fetch_max_wait_ms=22,
        fetch_max_bytes=33_333,
        max_partition_fetch_bytes=4_444,
        client_rack="r1",
        read_committed=True,
        request_timeout_ms=1_000,
    )
    (send,) = world_of({T0: log_of(1)}, settings).poll()
    request = built(send)
    assert (request.min_bytes, request.max_wait_ms, request.max_bytes) == (11, 22, 33_333)
    assert (request.isolation_level, request.rack_id) == (1, "r1")
    assert request.topics[0].partitions[0].partition_max_bytes == 4_444
    assert request.topics[0].partitions[0].current_leader_epoch == 0
    assert send.timeout_ms == 1_022, "the broker may hold the answer back"


def test_one_request_per_node_is_under_way() -> None:
    world = world_of({T0: log_of(1), T1: log_of(1, leader=1), U0: log_of(1)})
    sends = world.poll()
    assert sorted(sorted(fetched(send)) for send in sends) == [[("t", 0, 0), ("u", 0, 0)], [("t", 1, 0)]]
    assert world.poll() == []
    world.fetcher.positions.seek(U0, 0)
    assert world.poll() == [], "also for what is new"
    (first,) = [send for send in sends if send.target == Node(0)]
    world.deliver(first)
    assert world.take()
    assert [send.target for send in world.poll()] == [Node(0)]


def test_paused_partitions_are_not_fetched_and_keep_their_data() -> None:
    log = log_of(3)
    world = world_of({T0: log, T1: log_of(1)})
    world.fetcher.positions.pause([T1])
    (send,) = world.poll()
    assert fetched(send) == [("t", 0, 0)]
    assert world.fetcher.reasons()[T1] == Paused(False)
    world.fetcher.positions.pause([T0])
    world.deliver(send)
    assert world.fetcher.reasons()[T0] == Paused(True)
    assert not world.fetcher.ready()
    assert world.take() == []
    assert world.poll() == []
    world.fetcher.positions.resume([T0])
    assert world.fetcher.ready()
    before = len(world.cluster.fetch_requests)
    assert len(world.take()) == 3
    assert len(world.cluster.fetch_requests) == before, "nothing was fetched again"


def test_what_was_asked_for_before_a_seek_is_never_handed_out() -> None:
    world = world_of({T0: log_of(10)})
    (send,) = world.poll()
    world.fetcher.positions.seek(T0, 8)
    world.deliver(send)
    assert world.take() == []
    world.settle(1)
    world.fetcher.positions.seek(T0, 9)
    assert world.take() == []
    assert [record.offset for record in world.read()] == [9]


def test_what_was_fetched_of_a_revoked_partition_is_never_handed_out() -> None:
    world = world_of({T0: log_of(10)})
    world.settle(1)
    assert world.fetcher.ready()
    world.fetcher.positions.revoke([T0])
    assert not world.fetcher.ready()
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    assert world.take() == [], "even though the offset is the same"
    world.poll()
    assert world.fetcher.buffered_bytes == 0
    assert len(world.read()) == 10


def test_max_records_is_kept_and_positions_follow() -> None:
    world = world_of({T0: log_of(5), T1: log_of(5)})
    world.settle(1)
    assert [record.offset for record in world.take(3)] == [0, 1, 2]
    assert world.positions == {T0: 3, T1: 0}
    assert [(record.partition, record.offset) for record in world.take(4)] == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert world.positions == {T0: 5, T1: 2}


def test_a_partition_is_fetched_again_when_its_data_has_been_taken() -> None:
    world = world_of({T0: log_of(4)})
    world.settle(1)
    assert world.poll() == []
    world.take(3)
    assert world.poll() == []
    world.take(1)
    (send,) = world.poll()
    assert fetched(send) == [("t", 0, 4)]


def test_where_the_log_has_more_one_chunk_is_fetched_ahead() -> None:
    settings = FetchSettings(max_partition_fetch_bytes=400)
    world = world_of({T0: log_of(20)}, settings)
    (first,) = world.poll()
    world.deliver(first)
    (second,) = world.poll()
    ahead = fetched(second)[0][2]
    assert 0 < ahead < 20
    world.deliver(second)
    assert world.poll() == [], "one, not more"
    assert [record.offset for record in world.read(30)] == list(range(20))


def test_an_error_while_fetching_ahead_is_judged_when_its_turn_comes() -> None:
    log = log_of(20)
    world = world_of({T0: log}, FetchSettings(max_partition_fetch_bytes=400, auto_offset_reset=None))
    (first,) = world.poll()
    world.deliver(first)
    (second,) = world.poll()
    answer(second, world, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.take(), "what is here is still good"
    assert len(world.read(30)) > 10


def test_a_record_larger_than_every_limit_is_delivered() -> None:
    log = log_of(1, size=50)
    log.append(b"y" * 10_000)
    log.append(b"z")
    settings = FetchSettings(fetch_max_bytes=1, max_partition_fetch_bytes=1, queued_max_bytes=1)
    world = world_of({T0: log}, settings)
    found = world.read(20)
    assert [len(record.value) for record in found] == [50, 10_000, 1]


def test_a_limit_of_zero_still_brings_a_batch_at_a_time() -> None:
    settings = FetchSettings(fetch_max_bytes=0, max_partition_fetch_bytes=0, queued_max_bytes=0)
    assert len(world_of({T0: log_of(3)}, settings).read(10)) == 3


def test_partitions_take_turns() -> None:
    logs = {TopicPartition("t", index): log_of(30) for index in range(4)}
    world = world_of(logs, FetchSettings(fetch_max_bytes=800, max_partition_fetch_bytes=400))
    seen: list[int] = []
    for _ in range(40):
        world.settle(1)
        seen += [record.partition for record in world.take(2)]
    counts = [seen[:40].count(index) for index in range(4)]
    assert min(counts) >= 5, counts


def test_partitions_take_turns_also_where_the_broker_does_not_see_to_it() -> None:
    logs = {TopicPartition("t", index): log_of(30) for index in range(4)}
    world = world_of(logs, FetchSettings(fetch_max_bytes=200, max_partition_fetch_bytes=200))
    world.cluster.keeps_sessions = False
    seen: list[int] = []
    for _ in range(20):
        world.settle(1)
        seen += [record.partition for record in world.take()]
    counts = [seen.count(index) for index in range(4)]
    assert min(counts) >= 4, counts


def test_memory_for_fetched_data_is_bounded() -> None:
    logs = {TopicPartition("t", index): log_of(100, leader=index % 2) for index in range(6)}
    limit = 8_000
    world = world_of(logs, FetchSettings(queued_max_bytes=limit, max_partition_fetch_bytes=1_500))
    highest = 0
    for turn in range(200):
        world.settle(1)
        highest = max(highest, world.fetcher.buffered_bytes)
        if turn % 3 == 0:
            world.take(5)
    assert 0 < highest <= limit
    assert world.fetcher.buffered_bytes > limit // 4, "but the memory is made use of"


def test_memory_stays_bounded_when_a_node_is_added() -> None:
    logs = {T0: log_of(50), T1: log_of(50, leader=1)}
    world = World(FakeCluster(logs), FetchSettings(queued_max_bytes=4_000, max_partition_fetch_bytes=4_000))
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    world.settle(1)
    assert world.fetcher.buffered_bytes > 3_000
    world.fetcher.positions.assign([T0, T1])
    world.fetcher.positions.seek(T1, 0)
    assert world.poll() == []
    world.take()
    assert {send.target for send in world.poll()} == {Node(0), Node(1)}


def test_a_fast_node_leaves_room_for_a_slow_one() -> None:
    logs = {TopicPartition("t", index): log_of(50) for index in range(8)}
    logs[U0] = log_of(50, leader=1)
    world = world_of(logs, FetchSettings(queued_max_bytes=16_000, max_partition_fetch_bytes=1_500))
    for _ in range(20):
        world.poll()
        for send in list(world.wire):
            if send.target == Node(0):
                world.deliver(send)
    assert 4_000 < world.fetcher.buffered_bytes <= 8_000


def test_paused_data_gives_way_when_there_is_no_room_for_others() -> None:
    logs = {T0: log_of(50), T1: log_of(50)}
    world = world_of(logs, FetchSettings(queued_max_bytes=4_000, max_partition_fetch_bytes=4_000))
    world.fetcher.positions.pause([T1])
    (send,) = world.poll()
    world.fetcher.positions.pause([T0])
    world.fetcher.positions.resume([T1])
    world.deliver(send)
    assert world.fetcher.buffered_bytes > 2_000
    (send,) = world.poll()
    assert ("t", 1, 0) in fetched(send)
    assert world.fetcher.buffered_bytes == 0
    world.fetcher.positions.resume([T0])
    assert sum(record.partition == 0 for record in world.read(60)) == 50, "it is fetched again"


def test_what_was_fetched_ahead_of_data_that_gave_way_is_not_kept() -> None:
    logs = {T0: log_of(50), T1: log_of(50)}
    world = world_of(logs, FetchSettings(queued_max_bytes=4_000, max_partition_fetch_bytes=1_500))
    world.fetcher.positions.pause([T1])
    world.poll()
    world.deliver(world.wire[0])
    (ahead,) = world.poll()
    assert fetched(ahead)[0][2] > 0
    world.fetcher.positions.pause([T0])
    world.fetcher._fetches.buffer.drop_paused()
    world.deliver(ahead)
    assert world.fetcher.buffered_bytes == 0
    world.fetcher.positions.resume([T0])
    assert [record.offset for record in world.read(60) if record.partition == 0] == list(range(50))


def test_a_node_with_enough_waiting_is_not_asked_for_more() -> None:
    world = world_of(
        {T0: log_of(50), T1: log_of(50)},
        FetchSettings(queued_max_bytes=3_000, max_partition_fetch_bytes=2_000),
    )
    world.poll()
    world.deliver(world.wire[0])
    assert world.fetcher.buffered_bytes > 1_500
    assert world.poll() == []
    reasons = world.fetcher.reasons()
    assert Buffered(0) in reasons.values()
    while world.fetcher.ready():
        world.take(1)
    assert len(world.poll()) == 1


# -- the closest replica (KIP-392)


def rack_world(replica: int = 1) -> tuple[World, FakeLog]:
    log = log_of(5)
    log.preferred_replica = replica
    settings = FetchSettings(client_rack="r", metadata_max_age_ms=10_000)
    return world_of({T0: log}, settings), log


def test_the_closest_replica_is_fetched_from_while_the_advice_is_fresh() -> None:
    world, _ = rack_world()
    (send,) = world.poll()
    assert send.target == Node(0)
    world.deliver(send)
    (send,) = world.poll()
    assert send.target == Node(1)
    world.deliver(send)
    assert len(world.take()) == 5
    world.now_ms = 9_999
    (send,) = world.poll()
    assert send.target == Node(1)
    world.deliver(send)
    world.now_ms = 10_000
    (send,) = world.poll()
    assert send.target == Node(0), "the leader is asked again"


def test_out_of_range_at_a_follower_goes_back_to_the_leader() -> None:
    world, log = rack_world()
    world.settle(1)
    (send,) = world.poll()
    answer(send, world, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert world.positions == {T0: 0}
    log.preferred_replica = -1
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_follower_that_fails_is_left() -> None:
    world, _ = rack_world()
    world.settle(1)
    (send,) = world.poll()
    assert send.target == Node(1)
    world.fail(send)
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_follower_that_is_down_is_not_asked() -> None:
    world, log = rack_world()
    world.settle(1)
    log.offline_replicas = (1,)
    world.fetcher.update_cluster(world.cluster.metadata())
    (send,) = world.poll()
    assert send.target == Node(0)
    assert MetadataNeeded(frozenset({"t"})) in world.events
    world.deliver(send)
    assert world.poll() == [], "the leader sends us there in vain: not in a hot loop"
    assert world.fetcher.next_wake_ms(world.now_ms) == 100


def test_a_new_leader_gives_advice_of_its_own() -> None:
    world, log = rack_world()
    world.settle(1)
    (send,) = world.poll()
    assert send.target == Node(1)
    log.new_epoch(1, leader=0)
    world.fetcher.update_cluster(world.cluster.metadata())
    (send,) = world.poll()
    assert send.target == Node(0)


def test_a_leader_that_prefers_itself_is_read_from() -> None:
    world, log = rack_world()
    (send,) = world.poll()
    answer(send, world, preferred_read_replica=0, records=log.batches[0])
    assert len(world.take()) == 1


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
    (told,) = [event for event in world.fetcher.take_events() if isinstance(event, LeadersTold)]
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


# -- diagnosis


def test_reasons_tell_where_a_partition_stands() -> None:
    world = world_of({T0: log_of(2), T1: log_of(0)}, FetchSettings(fetch_min_bytes=9))
    assert world.fetcher.reasons()[T0] == AwaitingTurn(0, 0, 0)
    world.now_ms = 5
    world.poll()
    assert world.fetcher.reasons()[T0] == Fetching(0, 0, 5, 9, 500)
    world.deliver(world.wire[0])
    assert world.fetcher.reasons() == {T0: Buffered(0), T1: CaughtUp(0, 5)}
    world.take()
    world.now_ms = 8
    world.settle(1)
    assert world.fetcher.reasons() == {T0: CaughtUp(2, 8), T1: CaughtUp(0, 5)}


def test_lag_is_known_after_a_fetch() -> None:
    world = world_of({T0: log_of(9)})
    assert world.fetcher.positions.lag(T0) is None
    world.settle(1)
    world.take(2)
    assert world.fetcher.positions.lag(T0) == 7


def test_values_come_as_they_are() -> None:
    log = FakeLog()
    log.append(b"a", None, b"")
    assert values(world_of({T0: log}).read()) == [b"a", None, b""]


# -- settings


@pytest.mark.parametrize(
    ("text", "strategy", "duration_ms"),
    [
        ("earliest", ResetStrategy.EARLIEST, 0),
        ("latest", ResetStrategy.LATEST, 0),
        ("none", None, 0),
        ("by_duration:PT1H", ResetStrategy.BY_DURATION, 3_600_000),
    ],
)
def test_settings_come_from_those_of_the_consumer(
    text: str, strategy: ResetStrategy | None, duration_ms: int
) -> None:
    given = {"bootstrap.servers": "h:1", "auto.offset.reset": text, "fetch.max.bytes": 7, "client.rack": "r"}
    found = FetchSettings.from_config(ConsumerConfig.from_settings(given))
    assert (found.auto_offset_reset, found.reset_duration_ms) == (strategy, duration_ms)
    assert (found.fetch_max_bytes, found.client_rack, found.uses_committed) == (7, "r", False)
    grouped = ConsumerConfig.from_settings({**given, "group.id": "g"})
    assert FetchSettings.from_config(grouped).uses_committed


def test_defaults_are_those_of_the_consumer() -> None:
    config = ConsumerConfig.from_settings({"bootstrap.servers": "h:1", "group.id": "g"})
    assert FetchSettings.from_config(config) == FetchSettings()
