"""Each error code on each API has exactly one right action: see ``tests.kafka.error_table``.

A proxy refuses one request of a client. What the client does is read off the requests that come next, and off
what its user is told.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence

import pytest

from millstream import Admin, Producer
from millstream.errors import MillstreamError
from millstream.wire.messages.api_versions import ApiVersionsRequest
from millstream.wire.messages.fetch import FetchRequest
from millstream.wire.messages.groups import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
)
from millstream.wire.messages.metadata import METADATA
from millstream.wire.messages.offsets import LIST_OFFSETS
from millstream.wire.messages.produce import ProduceRequest
from millstream.wire.records.batch_header import BatchHeader, iter_headers
from millstream.wire.schema import Api, Request
from millstream.wire.versions import SOFTWARE_NAME
from tests.kafka import brokers
from tests.kafka.error_scenarios import SCENARIOS, Scenario, World
from tests.kafka.error_table import ROWS, TABLE, Act, Row
from tests.kafka.frame_proxy import FrameProxy
from tests.waiting import until

MANY = 1000
BROKERS = (brokers.EMBEDDED, brokers.APACHE_KAFKA)


@pytest.fixture(scope="module", params=BROKERS)
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Without a wait for more members, as each row has a group of its own."""
    with brokers.without_delay(request.param) as address:
        yield address


@pytest.fixture(scope="module")
def world(servers: str) -> Iterator[World]:
    topic = f"errors-{uuid.uuid4().hex}"
    with (
        FrameProxy(watches=True) as proxy,
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers, linger_ms=0) as producer,
    ):
        proxy.target = int(servers.rpartition(":")[2])
        admin.create_topic(topic, partitions=1)
        yield World(proxy, producer, admin, topic)
        admin.delete_topics(topic)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.asker}-{row.code.name}")
def test_the_right_action(world: World, row: Row) -> None:
    scenario = SCENARIOS[row.asker](world, row.asker)
    is_asked_again = _is_asked_again(row, scenario)
    # What is raised at once is raised though nobody who asks again is answered before that.
    is_raised_at_once = row.act in (Act.RAISE, Act.FATAL) and not is_asked_again
    try:
        scenario.prepare()
        times = MANY if is_asked_again else 1
        refusal = scenario.refuse(row.code, row.level, times, holds=is_raised_at_once)
        error = _error_of(scenario.act)
        scenario.refuse_no_more()
        assert refusal.done.is_set(), "nothing was refused"
        if is_asked_again:  # an answer that was refused may still be on its way
            until(lambda: _error_of(scenario.go_on) is None, "the next call works")
        later = _error_of(scenario.go_on) if error is not None or scenario.has_consequences else None
        check(row, scenario, error, later)
    finally:
        scenario.refuse_no_more()
        scenario.close()


def check(row: Row, scenario: Scenario, error: MillstreamError | None, later: MillstreamError | None) -> None:
    """What the user was told, then and later, and what the client did."""
    assert type(error) is (row.error or type(None)), repr(error)
    if row.act in (Act.RAISE, Act.FATAL):
        assert type(later) is (row.error if row.act is Act.FATAL else type(None)), repr(later)
    else:
        assert later is None, repr(later)
        assert _until_observed(scenario, row.act) is row.act


def _is_asked_again(row: Row, scenario: Scenario) -> bool:
    """Metadata are asked for by many, and again and again: the user is told when there is no end to it."""
    return row.act is Act.RAISE and scenario.api is METADATA


def _until_observed(scenario: Scenario, expected: Act) -> Act:
    """What the client has done; it may take its time, unless it is to do nothing.

    Metadata are asked for without anybody waiting for them, so they may come after the second attempt. And
    heartbeats go on until the user is in poll(), where a member joins anew.
    """
    is_late = expected is Act.REFRESH or (expected is Act.REJOIN and scenario.api is HEARTBEAT)
    too_early = {Act.DONE, Act.RETRY} if is_late else {Act.DONE}

    def look() -> Act | None:
        scenario.idle()
        found = observed(_after_the_refusal(scenario), is_patient=not scenario.asks_for_metadata)
        return found if found not in too_early else None

    return Act.DONE if expected is Act.DONE and look() is None else until(look, expected.value)


def observed(requests: Sequence[Request], *, is_patient: bool) -> Act:
    """What a client did about a refusal; the first request is the one that was refused.

    ``is_patient``: metadata may have been asked for at any time since.
    """
    refused, *after = requests
    place = next((place for place, each in enumerate(after) if each.api is refused.api), None)
    again = after[place] if place is not None else None
    between = [each.api for each in after[:place]]
    is_beating = isinstance(refused, HeartbeatRequest)  # it goes on with that until it joins
    end = None if place is None or is_beating else place + 1
    joins = [each for each in after[:end] if isinstance(each, JoinGroupRequest)]
    if joins and (refused.api is not JOIN_GROUP or not joins[0].member_id):
        return Act.REJOIN if joins[0].member_id else Act.REJOIN_ANEW
    if again is not None and (change := _changed(refused, again, between)):
        return change
    if again is None:
        return Act.DONE
    if FIND_COORDINATOR in between:
        return Act.FIND
    since = after if is_patient else after[:place]
    others = {each.api for each in since} - {refused.api}
    return Act.REFRESH if METADATA in others else Act.RETRY


def _changed(refused: Request, again: Request, between: Sequence[Api]) -> Act | None:
    """What is different about the next attempt, where that is what the action is."""
    if isinstance(refused, ProduceRequest) and isinstance(again, ProduceRequest):
        if _header(again).producer_epoch > _header(refused).producer_epoch:
            return Act.NEW_EPOCH
        if _header(again).record_count < _header(refused).record_count:
            return Act.SPLIT
    if isinstance(refused, FetchRequest) and isinstance(again, FetchRequest):
        if LIST_OFFSETS in between:
            return Act.RESET
        if refused.session_epoch > 0 and again.session_epoch == 0:
            return Act.NEW_SESSION
    if isinstance(refused, ApiVersionsRequest) and isinstance(again, ApiVersionsRequest):
        # Since version 3, clients say what they are called.
        names = refused.client_software_name, again.client_software_name
        return Act.LOWER if names == (SOFTWARE_NAME, "") else None
    return None


def _header(request: ProduceRequest) -> BatchHeader:
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert partition.records is not None
    return next(header for _, header in iter_headers(partition.records))


def _after_the_refusal(scenario: Scenario) -> list[Request]:
    """What the client has asked for, from the request that was refused on."""
    seen = scenario.world.proxy.seen(scenario.name)
    first = next(place for place, each in enumerate(seen) if each.is_refused)
    return [each.request for each in seen[first:]]


def _error_of(call: Callable[[], None]) -> MillstreamError | None:
    try:
        call()
    except MillstreamError as error:
        return error
    return None


def test_a_member_comes_again_with_the_id_that_it_is_given(world: World) -> None:
    """MEMBER_ID_REQUIRED, which the brokers answer every new member with."""
    scenario = SCENARIOS["JoinGroup"](world, "JoinGroup")
    try:
        scenario.act()
    finally:
        scenario.close()
    requests = [each.request for each in world.proxy.seen(scenario.name)]
    first, second = (each for each in requests if isinstance(each, JoinGroupRequest))
    assert not first.member_id
    assert second.member_id.startswith(scenario.name), "made of the client's name"


@pytest.mark.parametrize("newest", [5, 99])
def test_a_broker_that_is_older_than_the_client(world: World, newest: int) -> None:
    """The broker's own answer to a version of ApiVersions that it does not know (KIP-511)."""
    scenario = SCENARIOS["ApiVersions"](world, "ApiVersions")
    world.proxy.newest = newest
    try:
        scenario.act()
    finally:
        world.proxy.newest = None
        scenario.close()
    requests = [each.request for each in world.proxy.seen(scenario.name)]
    names = [each.client_software_name for each in requests if isinstance(each, ApiVersionsRequest)]
    assert names == [SOFTWARE_NAME, ""] * (len(names) // 2), "on each connection once in vain"


def test_every_scenario_has_rows() -> None:
    assert list(SCENARIOS) == list(TABLE)
    assert len({(row.asker, row.code) for row in ROWS}) == len(ROWS), "each code has one action"
