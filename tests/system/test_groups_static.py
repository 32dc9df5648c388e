"""Static members: back within the session they are who they were, and nobody can be them at the same time."""

from __future__ import annotations

import time

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.errors import FencedInstanceIdError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import (
    QUICK,
    Member,
    MemberProcess,
    Settings,
    partitions_of,
    poll_until,
    until_owns,
    until_shared,
)
from tests.waiting import SECONDS, until

SESSION: Settings = {"session_timeout_ms": 60_000}


def test_a_restart_within_the_session_causes_no_rebalance(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    """Closed and killed: either way it comes back to its partitions, in the same generation."""
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    with Member(bootstrap_servers, group, [topic], group_instance_id="stays", **SESSION) as stays:
        static: Settings = {"group_instance_id": "restarts", **SESSION}
        with MemberProcess(bootstrap_servers, group, [topic], polling=True, **static) as restarts:
            until_shared(everything, [stays, restarts], [2, 2])
            generation, kept, mine, told = stays.generation, stays.owned, restarts.owned, stays.told
            restarts.kill()
        for _ in range(2):
            with Member(bootstrap_servers, group, [topic], **static) as back:
                until_owns(back, mine)
                assert back.generation == generation
                back.call(lambda consumer: consumer.commit(dict.fromkeys(mine, 1)))
                described = {each.instance_id: each for each in admin.describe_group(group).members}
                assert set(described) == {"stays", "restarts"}
                assert frozenset(described["restarts"].assignment) == mine
            listed = {each.instance_id for each in admin.describe_group(group).members}
            assert listed == {"stays", "restarts"}, "a static member's close does not leave the group"
        stays.call(lambda consumer: consumer.commit(dict.fromkeys(kept, 1)))
        assert (stays.generation, stays.owned, stays.told) == (generation, kept, told), "others kept theirs"


def test_the_leader_restarts_and_partitions_added_meanwhile_are_not_forgotten(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    static: Settings = {"group_instance_id": "leader", "metadata_max_age_ms": 200, **SESSION}
    with Member(bootstrap_servers, group, [topic], **static) as leader:
        until_owns(leader, partitions_of(topic, 0, 1))
    admin.create_partitions(topic, 4)
    with Member(bootstrap_servers, group, [topic], **static) as back:
        until_owns(back, partitions_of(topic, 0, 1, 2, 3))


def test_a_member_that_is_back_with_one_more_topic_gets_it(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    """Its generation is kept for it (KIP-345), and no one in it was assigned the new topic."""
    topic, added = new_topic(partitions=2), new_topic(partitions=1)
    static: Settings = {"group_instance_id": "restarts", **SESSION}
    with Member(bootstrap_servers, group, [topic], group_instance_id="leads", **SESSION) as leads:
        until_owns(leads, partitions_of(topic, 0, 1))
        with Member(bootstrap_servers, group, [topic], **static) as restarts:
            until_shared(partitions_of(topic, 0, 1), [leads, restarts], [1, 1])
        with Member(bootstrap_servers, group, [topic, added], **static) as back:
            until(lambda: TopicPartition(added, 0) in back.owned, "it gets the topic that is new to it")


def test_after_its_session_a_static_member_is_gone(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    everything = partitions_of(topic, 0, 1)
    short: Settings = {"group_instance_id": "gone", "session_timeout_ms": 5000}
    with Member(bootstrap_servers, group, [topic]) as stays:
        with Member(bootstrap_servers, group, [topic], **short) as gone:
            until_shared(everything, [stays, gone], [1, 1])
        closed = time.monotonic()
        assert len(stays.owned) == 1, "a static member's close does not leave the group"
        until_owns(stays, everything)
        assert stays.happenings[-1].at - closed > 1.0, "its session was not respected"


def test_a_second_member_with_the_same_id_fences_the_first(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    everything = partitions_of(topic, 0, 1)
    settings: Settings = {**QUICK, "bootstrap_servers": bootstrap_servers, "group_id": group, **SESSION}
    with Consumer({**settings, "group_instance_id": "twin"}) as old:
        old.subscribe([topic])
        poll_until(old, lambda: old.assignment() == everything, "it has its partitions")
        with Member(bootstrap_servers, group, [topic], group_instance_id="twin", **SESSION) as new:
            until_owns(new, everything)
            with pytest.raises(FencedInstanceIdError, match=r"group_instance_id 'twin'"):
                until(lambda: old.poll(0.1), "it is fenced")
            assert old.assignment() == frozenset()
            with pytest.raises(FencedInstanceIdError):
                old.poll(0.1)
            with pytest.raises(FencedInstanceIdError):
                old.commit({TopicPartition(topic, 0): 1})
            producer.send(topic, b"for the new one", partition=0).result(SECONDS)
            until(lambda: new.records, "the new one goes on")
            assert new.owned == everything


def test_a_fenced_commit_is_refused(bootstrap_servers: str, new_topic: NewTopic, group: str) -> None:
    """The old one learns of it by a commit, before any heartbeat."""
    topic = new_topic()
    settings: Settings = {**QUICK, "heartbeat_interval_ms": 20_000, **SESSION, "group_instance_id": "twin"}
    with Consumer({**settings, "bootstrap_servers": bootstrap_servers, "group_id": group}) as old:
        old.subscribe([topic])
        poll_until(old, old.assignment, "it has its partition")
        with Member(bootstrap_servers, group, [topic], group_instance_id="twin", **SESSION) as new:
            until_owns(new, partitions_of(topic, 0))
            with pytest.raises(FencedInstanceIdError, match="twin"):
                old.commit({TopicPartition(topic, 0): 7})
            stored = new.call(lambda consumer: consumer.committed([TopicPartition(topic, 0)]))
            assert stored == {TopicPartition(topic, 0): None}
