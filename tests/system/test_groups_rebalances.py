"""When a group rebalances: who owns what before and after, how soon, and what a slow member keeps."""

from __future__ import annotations

import re
import threading
import time
from functools import partial

import pytest

from millstream.admin import Admin
from millstream.consumer import Consumer
from millstream.errors import CommitFailedError
from millstream.model import TopicPartition
from millstream.producer import Producer
from tests.conftest import NewTopic
from tests.system.members import (
    Member,
    MemberProcess,
    Settings,
    is_shared,
    partitions_of,
    poll_until,
    until_owns,
    until_shared,
)
from tests.waiting import SECONDS, until

EAGER, COOPERATIVE = "range", "cooperative-sticky"


# --- five reasons to rebalance


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_member_joins(bootstrap_servers: str, new_topic: NewTopic, group: str, assignor: str) -> None:
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    settings: Settings = {"partition_assignment_strategy": assignor}
    with Member(bootstrap_servers, group, [topic], **settings) as first:
        until_owns(first, everything)
        with Member(bootstrap_servers, group, [topic], **settings) as second:
            until_shared(everything, [first, second], [2, 2])
            kept, moved = first.owned, second.owned
            assert second.told == [("assigned", moved)]
            if assignor == COOPERATIVE:
                assert first.told == [("assigned", everything), ("revoked", moved)], "the rest stays"
            else:
                assert first.told == [("assigned", everything), ("revoked", everything), ("assigned", kept)]
            given_up = next(each.at for each in first.happenings if each.what == "revoked")
            taken = next(each.at for each in second.happenings if each.partitions)
            assert given_up < taken, "a partition had two owners"


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_member_leaves_cleanly_and_the_others_go_on_at_once(
    bootstrap_servers: str, new_topic: NewTopic, group: str, assignor: str
) -> None:
    """In under a second, long before its session would have ended."""
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    settings: Settings = {"partition_assignment_strategy": assignor, "session_timeout_ms": 60_000}
    gaps: list[float] = []
    with Member(bootstrap_servers, group, [topic], **settings) as stays:
        while min(gaps, default=1.0) >= 1.0 and len(gaps) < 10:  # the machine may be busy
            with Member(bootstrap_servers, group, [topic], **settings) as leaves:
                until_shared(everything, [stays, leaves], [2, 2])
                last = leaves.owned
            assert leaves.told[-1] == ("revoked", last)
            until_owns(stays, everything)
            gaps.append(stays.happenings[-1].at - leaves.happenings[-1].at)
    assert min(gaps) < 1.0, f"the partitions had no owner for {gaps} s"


def test_a_member_is_killed_and_the_others_go_on_after_its_session(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=4)
    everything = partitions_of(topic, 0, 1, 2, 3)
    with (
        Member(bootstrap_servers, group, [topic], session_timeout_ms=60_000) as stays,
        MemberProcess(bootstrap_servers, group, [topic], polling=True, session_timeout_ms=4000) as dies,
    ):
        until_shared(everything, [stays, dies], [2, 2])
        rest = stays.owned
        killed = time.monotonic()
        dies.kill()
        until(lambda: stays.owned != rest, "the survivor notices")
        until_owns(stays, everything)
        taken = stays.happenings[-1].at
        # The last heartbeat was a moment before the end, or some moments on a busy machine.
        assert taken - killed > 1.0, "the session was cut short"
        assert taken - killed < 40, "the session had ended long ago, if it was the dead member's"


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_partitions_are_added(
    bootstrap_servers: str, admin: Admin, producer: Producer, new_topic: NewTopic, group: str, assignor: str
) -> None:
    topic = new_topic(partitions=2)
    settings: Settings = {"partition_assignment_strategy": assignor, "metadata_max_age_ms": 200}
    with (
        Member(bootstrap_servers, group, [topic], **settings) as one,
        Member(bootstrap_servers, group, [topic], **settings) as two,
    ):
        until_shared(partitions_of(topic, 0, 1), [one, two], [1, 1])
        admin.create_partitions(topic, 4)
        until_shared(partitions_of(topic, 0, 1, 2, 3), [one, two], [2, 2])
        producer.send(topic, b"in a new partition", partition=3).result(SECONDS)
        until(lambda: one.records or two.records, "the new partition is read")


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
def test_a_new_topic_matches_the_pattern(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str, assignor: str
) -> None:
    old = new_topic(2, "orders")
    prefix = old.rpartition("-orders-")[0]
    settings: Settings = {"partition_assignment_strategy": assignor, "metadata_max_age_ms": 200}
    with (
        Member(bootstrap_servers, group, pattern=f"{prefix}-(orders|returns)-.*", **settings) as one,
        Member(bootstrap_servers, group, pattern=f"{prefix}-(orders|returns)-.*", **settings) as two,
    ):
        until_shared(partitions_of(old, 0, 1), [one, two], [1, 1])
        new_topic(2, "others")
        new = new_topic(2, "returns")
        until_shared(partitions_of(old, 0, 1) | partitions_of(new, 0, 1), [one, two], [2, 2])
        assert one.call(lambda consumer: consumer.subscription()) == {old, new}
        producer.send(new, b"in a new topic", partition=0).result(SECONDS)
        until(lambda: one.records or two.records, "the new topic is read")


def test_a_topic_that_is_deleted_is_given_up(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    stays, goes = new_topic(1, "stays"), new_topic(1, "goes")
    pattern = stays.rpartition("-stays-")[0] + "-(stays|goes)-.*"
    with Member(bootstrap_servers, group, pattern=pattern, metadata_max_age_ms=200) as member:
        until_owns(member, partitions_of(stays, 0) | partitions_of(goes, 0))
        admin.delete_topics([goes])
        until_owns(member, partitions_of(stays, 0))
        assert member.call(lambda consumer: consumer.subscription()) == {stays}
        admin.create_topic(goes, partitions=1)  # and back again, under the same name
        until_owns(member, partitions_of(stays, 0) | partitions_of(goes, 0))


def test_a_deletion_that_was_not_noticed_does_not_hold_up_a_rebalance(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    """The commit before the rebalance fails for the topic that is gone, and is not repeated for ever."""
    stays, goes = new_topic(1, "stays"), new_topic(1, "goes")
    with Member(bootstrap_servers, group, [stays, goes], fetch_max_wait_ms=20_000) as member:
        until_owns(member, partitions_of(stays, 0) | partitions_of(goes, 0))
        for each in member.owned:
            member.call(partial(Consumer.position, partition=each))
        admin.delete_topics([goes])
        member.call(lambda consumer: consumer.subscribe([stays], listener=member.recorder))
        until_owns(member, partitions_of(stays, 0), 15)


def test_a_pattern_needs_the_whole_name_and_leaves_internal_topics_out(
    bootstrap_servers: str, admin: Admin, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1, "a")
    admin.reset_offsets(f"{group}-before", "latest", topics=topic)  # makes the topic of offsets
    with Member(bootstrap_servers, group, pattern=f"__.*|{re.escape(topic)}") as member:
        until(lambda: partitions_of(topic, 0) <= member.owned, "the pattern matches")
        assert not any(each.topic.startswith("__") for each in member.owned)
        member.call(lambda consumer: consumer.subscribe(pattern=topic[:-1], listener=member.recorder))
        until_owns(member, frozenset())
        assert member.call(lambda consumer: consumer.subscription()) == frozenset()


# --- heartbeats have a thread of their own


def test_a_slow_poll_loop_keeps_its_partitions(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    """Between two polls passes more than the session timeout, and nobody notices."""
    topic = new_topic(partitions=2)
    with (
        Member(bootstrap_servers, group, [topic], session_timeout_ms=4000) as slow,
        Member(bootstrap_servers, group, [topic]) as witness,
    ):
        until_shared(partitions_of(topic, 0, 1), [slow, witness], [1, 1])
        before = (slow.generation, witness.generation, slow.told, witness.told)
        slow.call(lambda _: time.sleep(5.0))
        slow.call(lambda consumer: consumer.commit())
        assert (slow.generation, witness.generation, slow.told, witness.told) == before
        (mine,) = slow.owned
        producer.send(topic, b"still here", partition=mine.partition).result(SECONDS)
        until(lambda: [record.value for record in slow.records] == [b"still here"], "it goes on reading")


def test_a_stuck_member_loses_its_partitions_and_comes_back(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(partitions=2)
    everything = partitions_of(topic, 0, 1)
    for number in range(2):
        producer.send(topic, b"work", partition=number).result(SECONDS)
    rescued = threading.Event()
    with (
        Member(bootstrap_servers, group, [topic], max_poll_interval_ms=2000, client_id="stuck") as stuck,
        Member(bootstrap_servers, group, [topic]) as other,
    ):
        until_shared(everything, [stuck, other], [1, 1])

        def work_for_too_long(consumer: Consumer) -> frozenset[TopicPartition]:
            lost = consumer.assignment()
            assert rescued.wait(SECONDS)
            assert ("lost", lost) not in stuck.told, "callbacks run in poll(), not behind the user's back"
            assert consumer.assignment() == lost, "as in Kafka, it changes inside poll() only"
            with pytest.raises(CommitFailedError, match=r"max_poll_interval_ms is 2000: .*max_poll_records"):
                consumer.commit()
            with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
                consumer.commit(dict.fromkeys(lost, 1))
            failures: list[Exception | None] = []
            consumer.commit_async(callback=lambda _, error: failures.append(error))
            consumer.commit({})
            assert isinstance(failures[0], CommitFailedError)
            return lost

        working = stuck.begin(work_for_too_long)
        until_owns(other, everything)
        rescued.set()
        lost = working.result(SECONDS)
        until_shared(everything, [stuck, other], [1, 1])
        assert stuck.told[-2:] == [("lost", lost), ("assigned", stuck.owned)]
        stuck.call(lambda consumer: consumer.commit())


def test_waiting_in_poll_is_not_being_stuck(
    bootstrap_servers: str, producer: Producer, new_topic: NewTopic, group: str
) -> None:
    """One long poll lasts longer than max.poll.interval.ms, which is about the time between polls."""
    topic = new_topic()
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        max_poll_interval_ms=5000,
    ) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, consumer.assignment, "it has its partition")
        generation = consumer.group_metadata().generation_id
        assert not consumer.poll(6.0)
        producer.send(topic, b"late").result(SECONDS)
        assert [record.value for record in consumer.poll(SECONDS)] == [b"late"]
        consumer.commit()
        assert consumer.group_metadata().generation_id == generation


def test_a_member_that_does_not_rejoin_holds_the_group_up_for_max_poll_interval_only(
    bootstrap_servers: str, new_topic: NewTopic, group: str
) -> None:
    """Its heartbeats go on, but it cannot give anything up: the rebalance waits for it, and not for ever."""
    topic = new_topic(partitions=2)
    everything = partitions_of(topic, 0, 1)
    go_on = threading.Event()
    settings: Settings = {"max_poll_interval_ms": 2000, "session_timeout_ms": 30_000}
    with Member(bootstrap_servers, group, [topic], **settings) as busy:
        until_owns(busy, everything)
        working = busy.begin(lambda _: go_on.wait(SECONDS))
        with Member(bootstrap_servers, group, [topic]) as new:
            until_owns(new, everything, 25)
            go_on.set()
            working.result(SECONDS)
            until(lambda: is_shared(everything, [busy, new]) and busy.owned, "it is back")
            assert ("lost", everything) in busy.told
