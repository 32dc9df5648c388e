"""Loads as members of a group: several drivers, partitions that move, topics that change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.admin import Admin
from millstream.errors import DataLostError, FencedInstanceIdError, LoadFailedError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.load import Detail, Load, Point
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import Cycle
from tests.conftest import NewTopic
from tests.spark.burying import bury
from tests.spark.conftest import Fill
from tests.spark.load.conftest import (
    LOAD_SECONDS,
    QUICK,
    Background,
    NewLoad,
    Pause,
    offsets,
    running,
    until_loaded,
    until_owned,
)
from tests.spark.load.sqlite_sink import SqliteSink
from tests.waiting import until


def another(sink: SqliteSink) -> SqliteSink:
    """The same table, as another driver has it."""
    return SqliteSink(sink.directory)


def test_drivers_share_the_partitions_and_one_takes_over(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic(partitions=4)
    first, second = new_load(topic), new_load(topic, sink=another(sink))
    with running(first):
        until_owned(4, first)
        with running(second):
            until_owned(2, first, second)
            for partition in range(4):
                fill(topic, 10, partition=partition)
            until_loaded(40, first, second)
            assert first.snapshot().loaded == second.snapshot().loaded == 20
        until_owned(4, first)
        for partition in range(4):
            fill(topic, 5, partition=partition, first=10)
        until_loaded(40, first)
    assert sink.positions() == [place for n in range(4) for place in offsets(topic, n, 0, 15)]


def test_once_waits_for_what_others_of_the_group_load(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    pause = Pause(Point.TASKS_DONE)
    holder = new_load(topic, observer=pause)
    with running(holder), pause:
        pause.wait_reached()
        waiting = Background(new_load(topic, sink=another(sink)).run_once)
        waiting.thread.start()
        waiting.thread.join(1.0)
        assert waiting.thread.is_alive(), "nothing is in the table yet"
        pause.let_go()
        waiting.join()
        assert sink.positions() == offsets(topic, 0, 0, 10)


def test_lesson_3_and_17_a_cycle_whose_partitions_go_is_broken_off(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    """The cycle of the first driver is not committed yet when a second one comes for half of it."""
    topic = new_topic(partitions=2)
    fill(topic, 10, partition=0)
    fill(topic, 10, partition=1)
    pause = Pause(Point.TASKS_DONE)
    first, second = new_load(topic, observer=pause), new_load(topic, sink=another(sink))
    with running(first), pause:
        pause.wait_reached()
        with running(second):
            until_owned(1, first)
            pause.let_go()
            until_loaded(20, first, second)
    assert sink.positions() == offsets(topic, 0, 0, 10) + offsets(topic, 1, 0, 10)


def test_a_cycle_that_is_committing_ends_before_its_partitions_go(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10, partition=0)
    fill(topic, 10, partition=1)
    pause = Pause(Point.SINK_COMMITTED)
    first, second = new_load(topic, observer=pause), new_load(topic, sink=another(sink))
    with running(first), pause:
        pause.wait_reached()
        with running(second):
            # Not a state of the group: members that keep partitions while they rebalance pass through all of
            # them in no time, and come to rest in one that looks as if nothing had happened.
            until_owned(1, first)
            time.sleep(1.0)  # nothing must happen: it would be soon
            assert second.snapshot().partitions == 0, "the group waits for the commit"
            pause.let_go()
            until_owned(1, second)
            committed = admin.group_offsets(group, topic)
            assert {one.offset for one in committed.values()} == {10}
            assert second.snapshot().loaded == 0, "the group knew, and the table too"
    assert sink.positions() == offsets(topic, 0, 0, 10) + offsets(topic, 1, 0, 10)


def test_a_static_member_that_restarts_moves_nothing(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    patient = {**QUICK, "session.timeout.ms": 300_000}  # it must come back before its session ends
    told: dict[str, list[Point]] = {"a": [], "b": []}

    def static(name: str) -> Load:
        def count(point: Point, detail: Detail) -> None:
            if point is Point.REBALANCING:
                told[name].append(point)

        return new_load(topic, instance_id=name, sink=another(sink), observer=count, properties=patient)

    other = static("b")
    with running(other):
        until_owned(2, other)
        with running(load := static("a")):
            until_owned(1, load, other)
            # Both are told of each rebalance; the other of one before, too, and of the partition that went.
            until(lambda: len(told["b"]) == len(told["a"]) + 2, lambda: f"the end of a rebalance: {told}")
        before = len(told["b"])
        fill(topic, 3, partition=0)
        with running(again := static("a")):
            until_owned(1, again)
            until_loaded(3, again, other)
        assert len(told["b"]) == before
    assert sink.positions() == offsets(topic, 0, 0, 3)


def test_a_second_driver_with_the_same_instance_id_ends_the_first(
    new_load: NewLoad, new_topic: NewTopic, sink: SqliteSink
) -> None:
    topic = new_topic()
    first = new_load(topic, instance_id="a")
    background = Background(lambda: first.run(every=0))
    background.thread.start()
    until_owned(1, first)
    with (
        running(new_load(topic, instance_id="a", sink=another(sink))),
        pytest.raises((FencedInstanceIdError, LoadFailedError), match="group_instance_id"),
    ):
        background.join()


def test_lesson_13_partitions_that_are_added_are_loaded_from_their_beginning(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin
) -> None:
    topic = new_topic()
    fill(topic, 5)
    load = new_load(topic, starting="latest")
    with running(load):
        until(lambda: sink.commits, "a first commit, of where it begins", LOAD_SECONDS)
        admin.create_partitions(topic, 2)
        fill(topic, 7, partition=1)
        fill(topic, 2, partition=0, first=5)
        until_loaded(9, load)
    assert sink.positions() == offsets(topic, 0, 5, 7) + offsets(topic, 1, 0, 7)


def test_lesson_6_partitions_without_records_stall_nobody(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=3)
    fill(topic, 4, partition=1)
    report = new_load(topic).run_once()
    assert (report.loaded, report.files) == (4, 1)
    assert {one.offset for one in admin.group_offsets(group, topic).values()} == {0, 4}


def test_retention_that_passes_the_start_is_an_error_or_a_record(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    fill(topic, 20, first=10)
    admin.delete_records({TopicPartition(topic, 0): 18})
    with pytest.raises(DataLostError, match="--accept-data-loss") as raised:
        new_load(topic).run_once()
    assert raised.value.ranges == ((topic, 0, 10, 18),)
    report = new_load(topic, fail_on_data_loss=False).run_once()
    assert [(one.start, one.end) for one in report.lost] == [(10, 18)]
    assert [(one.start, one.end, str(one.reason)) for one in sink.lost(group)] == [(10, 18, "retention")]
    assert sink.positions() == offsets(topic, 0, 0, 10) + offsets(topic, 0, 18, 30)
    assert new_load(topic).run_once().cycles == 0, "what is recorded is settled"


def test_lesson_5_a_topic_made_anew_is_refused_or_added(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin
) -> None:
    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=1)
    fill(topic, 4)
    with pytest.raises(LoadFailedError, match="recreated"):
        new_load(topic).run_once()
    report = new_load(topic, on_recreated="append").run_once()
    assert report.ranges == (OffsetRange(topic, 0, 0, 4),)
    assert len(sink.positions()) == 14
    assert new_load(topic).run_once().cycles == 0, "it is the topic that is loaded now"


def test_lesson_16_a_tail_without_records_is_passed(
    new_load: NewLoad, bootstrap_servers: str, new_topic: NewTopic, sink: SqliteSink, admin: Admin
) -> None:
    """Compaction leaves gaps: offsets without records are no loss, and progress passes them."""
    topic = new_topic(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, segment_ms=1)
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=0) as producer:
        for number in range(20):
            producer.send(topic, b"v%d" % number, key=b"k%d" % (number % 2)).result()
    report = new_load(topic).run_once()
    assert report.ranges == (OffsetRange(topic, 0, 0, 20),)
    assert not report.lost
    found = sink.positions()
    assert len(found) == len(set(found)) <= 20 and found[-1][2] == 19


class Stalling(SqliteSink):
    """A sink that waits before its first commit of rows, as a process does that is left for dead."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.pause = Pause(Point.TASKS_DONE)

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        if cycle.written:
            self.pause(Point.TASKS_DONE, Detail())
        super().commit(cycle, at)


def test_lesson_2_a_driver_that_was_left_for_dead_cannot_write(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    """It is about to commit when its partitions go, without it, to another one that loads them."""
    topic = new_topic(partitions=2)
    fill(topic, 20, partition=0)
    fill(topic, 20, partition=1)
    stalling = Stalling(sink.directory)
    late = new_load(topic, sink=stalling, properties={**QUICK, "client.id": "zombie"})
    zombie = Background(late.run_once)
    zombie.thread.start()
    other = new_load(topic, sink=another(sink))
    with stalling.pause:
        stalling.pause.wait_reached()
        with running(other):
            until(lambda: late.snapshot().partitions < 2, "it shall give something up")
            bury(admin, group, "zombie")
            until(lambda: other.snapshot().loaded >= 20, lambda: f"20 of {other.snapshot()}", LOAD_SECONDS)
            before = sink.positions()
            stalling.pause.let_go()
            zombie.join()
    assert len(before) >= 20
    assert sink.positions() == offsets(topic, 0, 0, 20) + offsets(topic, 1, 0, 20)
