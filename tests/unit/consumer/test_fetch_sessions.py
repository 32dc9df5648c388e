"""Fetch sessions: full and incremental requests, and every way back to a full one."""

from __future__ import annotations

import pytest

from millstream.consumer.fetching.sessions import FetchRequestData, FetchSessionHandler, PartitionFetch
from millstream.errors import ErrorCode
from millstream.model import TopicPartition
from millstream.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.wire.records.primitives import INT32_MAX
from millstream.wire.schema import ZERO_UUID
from tests.unit.consumer.configs import config
from tests.unit.consumer.fake_cluster import T0, T1, U0, FakeCluster, FakeLog, topic_id
from tests.unit.consumer.fetch_world import World, log_of, values

SETTINGS = config(auto_offset_reset="earliest")


def fetch(topic: str, offset: int = 0, incarnation: int = 0) -> PartitionFetch:
    return PartitionFetch(topic_id(topic, incarnation), offset, 0, 1_000)


def next_request(
    session: FetchSessionHandler, fetches: dict[TopicPartition, PartitionFetch]
) -> FetchRequestData:
    """The next request, which fetches exactly these partitions."""
    for partition in [*fetches, *session.partitions]:
        session.put(partition, fetches.get(partition))
    return session.plan()


def started(fetches: dict[TopicPartition, PartitionFetch]) -> FetchSessionHandler:
    session = FetchSessionHandler()
    assert next_request(session, fetches).is_full
    session.answered(5)
    return session


def request(plan: FetchRequestData, version: int = 18) -> FetchRequest:
    return FetchRequest.decode(plan.build(SETTINGS, 9_999, version).encode(version), version)


def named(sent: FetchRequest) -> list[tuple[bytes | str, int, int]]:
    return [
        (topic.topic or topic.topic_id, one.partition, one.fetch_offset)
        for topic in sent.topics
        for one in topic.partitions
    ]


def forgotten(sent: FetchRequest) -> list[tuple[bytes | str, list[int]]]:
    return [(topic.topic or topic.topic_id, topic.partitions) for topic in sent.forgotten_topics_data]


def test_the_first_request_names_everything() -> None:
    sent = request(next_request(FetchSessionHandler(), {T0: fetch("t"), U0: fetch("u", 3)}))
    assert (sent.session_id, sent.session_epoch) == (0, 0)
    assert named(sent) == [(topic_id("t"), 0, 0), (topic_id("u"), 0, 3)]
    assert (sent.max_bytes, sent.min_bytes, sent.max_wait_ms) == (9_999, 1, 500)


def test_later_requests_name_what_changed() -> None:
    session = started({T0: fetch("t"), T1: fetch("t"), U0: fetch("u")})
    sent = request(next_request(session, {T0: fetch("t", 4), T1: fetch("t")}))
    assert (sent.session_id, sent.session_epoch) == (5, 1)
    assert named(sent) == [(topic_id("t"), 0, 4)]
    assert forgotten(sent) == [(topic_id("u"), [0])]
    session.answered(5)
    sent = request(next_request(session, {T0: fetch("t", 4), T1: fetch("t"), U0: fetch("u", 1)}))
    assert sent.session_epoch == 2
    assert named(sent) == [(topic_id("u"), 0, 1)]
    assert forgotten(sent) == []


def test_names_are_used_before_version_13() -> None:
    session = started({T0: fetch("t"), U0: fetch("u")})
    sent = request(next_request(session, {T0: fetch("t", 1)}), version=12)
    assert named(sent) == [("t", 0, 1)]
    assert forgotten(sent) == [("u", [0])]


def test_without_sessions_every_request_names_everything() -> None:
    session = started({T0: fetch("t"), T1: fetch("t")})
    sent = request(next_request(session, {T0: fetch("t", 1), T1: fetch("t")}), version=6)
    assert named(sent) == [("t", 1, 0), ("t", 0, 1)]


def test_a_recreated_topic_replaces_the_old_one() -> None:
    session = started({T0: fetch("t"), T1: fetch("t")})
    plan = next_request(session, {T0: fetch("t", incarnation=1), T1: fetch("t")})
    assert forgotten(request(plan)) == [(topic_id("t"), [0])]
    assert named(request(plan)) == [(topic_id("t", 1), 0, 0)]
    assert forgotten(request(plan, version=12)) == [], "by name it is the same partition"


def test_a_topic_without_an_id_is_fetched_by_name() -> None:
    session = started({T0: fetch("t")})
    plan = next_request(session, {T0: PartitionFetch(ZERO_UUID, 0, None, 1_000), U0: fetch("u")})
    assert (plan.max_version, plan.session_id, plan.epoch) == (12, 5, 0), "it ends the session with ids"
    assert named(request(plan, version=12)) == [("t", 0, 0), ("u", 0, 0)]
    session.answered(6)
    plan = next_request(session, {T0: fetch("t"), U0: fetch("u")})
    assert (plan.max_version, plan.session_id, plan.epoch) == (None, 6, 0), "and ids begin another again"


def test_records_of_topics_without_ids_arrive() -> None:
    """As during a rolling upgrade: the broker offers Fetch 18, but topics have no ids yet (KIP-516)."""
    cluster = FakeCluster({T0: log_of(3)})
    cluster.has_topic_ids = False
    world = World(cluster, SETTINGS)
    world.fetcher.positions.assign([T0])
    world.fetcher.positions.seek(T0, 0)
    assert len(world.read(3)) == 3
    cluster.has_topic_ids = True
    cluster.logs[T0].append(b"x")
    world.fetcher.update_cluster(cluster.metadata())
    assert len(world.read(3)) == 1
    assert any(topic.topic_id == topic_id("t") for _, sent in cluster.fetch_requests for topic in sent.topics)


def test_epochs_wrap_to_1() -> None:
    session = started({T0: fetch("t")})
    session.epoch = INT32_MAX
    session.answered(5)
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
    ],
)
def test_a_refused_request_starts_over(code: ErrorCode, session_id: int) -> None:
    session = started({T0: fetch("t")})
    session.refused(code)
    plan = next_request(session, {T0: fetch("t")})
    assert (plan.session_id, plan.epoch) == (session_id, 0)
    assert list(plan.named) == [T0]


def test_a_lost_request_starts_over_and_ends_the_old_session() -> None:
    session = started({T0: fetch("t")})
    session.lost()
    plan = next_request(session, {T0: fetch("t")})
    assert (plan.session_id, plan.epoch, list(plan.named)) == (5, 0, [T0])


def test_a_broker_may_keep_no_session_or_end_it() -> None:
    session = started({T0: fetch("t")})
    session.answered(0)
    assert next_request(session, {T0: fetch("t")}).is_full
    session.answered(0)
    assert next_request(session, {T0: fetch("t")}).is_full


def test_an_answer_from_another_session_starts_over() -> None:
    session = started({T0: fetch("t")})
    session.answered(6)
    assert next_request(session, {T0: fetch("t")}).is_full


def test_closing_ends_the_session_at_the_broker() -> None:
    assert FetchSessionHandler().close() is None
    plan = started({T0: fetch("t")}).close()
    assert plan is not None
    sent = request(plan)
    assert (sent.session_id, sent.session_epoch, sent.topics) == (5, -1, [])


def test_answers_to_what_was_not_asked_are_noticed() -> None:
    plan = next_request(FetchSessionHandler(), {T0: fetch("t")})

    def answer(identifier: bytes, *indexes: int) -> FetchResponse:
        partitions = [
            PartitionData(
                partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=None
            )
            for index in indexes
        ]
        return FetchResponse(
            responses=[FetchableTopicResponse(topic="", topic_id=identifier, partitions=partitions)]
        )

    assert list(plan.answers(answer(topic_id("t"), 0)) or ()) == [T0]
    assert plan.answers(answer(topic_id("t"), 1)) is None
    assert plan.answers(answer(topic_id("x"), 0)) is None
    assert plan.answers(answer(ZERO_UUID, 0)) is None
    assert plan.answers(answer(topic_id("t"), 0, 0)) is None, "twice"


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 18])
def test_reading_works_in_every_version(version: int) -> None:
    logs = {T0: FakeLog(), T1: FakeLog(leader=1), U0: FakeLog()}
    for log in logs.values():
        log.append(b"a", b"b")
        log.append(b"c")
    cluster = FakeCluster(logs)
    cluster.versions[FetchRequest] = version
    world = World(cluster, SETTINGS)
    world.fetcher.positions.assign(logs)
    assert sorted(map(str, values(world.read()))) == sorted(["b'a'", "b'b'", "b'c'"] * 3)
    logs[T0].append(b"d")
    assert values(world.read()) == [b"d"]
    incremental = [sent for _, sent in cluster.fetch_requests if sent.session_epoch > 0]
    assert bool(incremental) == (version >= 7)


def test_sessions_survive_their_loss_at_the_broker() -> None:
    log = FakeLog()
    world = World(FakeCluster({T0: log}), SETTINGS)
    world.fetcher.positions.assign([T0])
    log.append(b"a")
    assert values(world.read()) == [b"a"]
    world.cluster.sessions.clear()
    log.append(b"b")
    assert values(world.read()) == [b"b"]


def test_what_a_lost_request_named_is_named_again() -> None:
    logs = {T0: FakeLog(), T1: FakeLog()}
    world = World(FakeCluster(logs), SETTINGS)
    world.fetcher.positions.assign([T0])
    logs[T0].append(b"a")
    assert values(world.read()) == [b"a"]
    for send in list(world.wire):
        world.deliver(send)
    world.fetcher.positions.assign([T0, T1])
    world.fetcher.positions.seek(T1, 0)
    (lost,) = world.poll()
    world.fail(lost)
    logs[T1].append(b"b")
    assert values(world.read()) == [b"b"]


def test_a_broker_without_sessions_is_fetched_from_as_well() -> None:
    log = FakeLog()
    world = World(FakeCluster({T0: log}), SETTINGS)
    world.cluster.keeps_sessions = False
    world.fetcher.positions.assign([T0])
    log.append(b"a")
    assert values(world.read()) == [b"a"]
    log.append(b"b")
    assert values(world.read()) == [b"b"]
    assert {sent.session_epoch for _, sent in world.cluster.fetch_requests} == {0}


def test_close_asks_each_broker_to_end_its_session() -> None:
    world = World(FakeCluster({T0: FakeLog(), T1: FakeLog(leader=1)}), SETTINGS)
    world.fetcher.positions.assign([T0, T1])
    world.read()
    assert len(world.cluster.sessions) == 2
    for send in world.fetcher.close():
        world.cluster.answer(send)
    assert world.cluster.sessions == {}
