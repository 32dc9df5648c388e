"""A load from beginning to end, over the real Spark and the real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from millstream.admin import Admin
from millstream.errors import (
    DataLostError,
    LoadFailedError,
    MisuseError,
)
from millstream.model import RESET_METADATA, TopicPartition
from millstream.spark.load import Detail, Load, Point
from millstream.spark.load.decisions.commit_metadata import read_commit_metadata
from millstream.spark.load.status import status
from millstream.spark.planning.ranges import OffsetRange
from millstream.spark.sinks.base import Cycle, SinkError
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.load.conftest import NewLoad, offsets, running, until_loaded, until_owned
from tests.spark.load.sqlite_sink import SqliteSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def committed(admin: Admin, group: str, topic: str) -> dict[int, int]:
    return {one.partition: at.offset for one, at in admin.group_offsets(group, topic).items()}


def test_a_topic_becomes_a_table_and_the_group_knows(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=3)
    fill(topic, 100, partition=0)
    fill(topic, 50, partition=2)
    report = new_load(topic).run_once()
    assert sink.positions() == offsets(topic, 0, 0, 100) + offsets(topic, 2, 0, 50)
    assert [row["value"] for row in sink.values()[:2]] == ["b'v0'", "b'v1'"]
    assert (report.loaded, report.rejected, report.records, report.cycles) == (150, 0, 150, 1)
    assert report.ranges == (OffsetRange(topic, 0, 0, 100), OffsetRange(topic, 2, 0, 50))
    assert report.files == 2 and report.bytes > 0 and report.seconds > 0 and not report.lost
    assert committed(admin, group, topic) == {0: 100, 1: 0, 2: 50}
    found = admin.group_offsets(group, topic)[TopicPartition(topic, 0)].metadata
    mark = read_commit_metadata(found)
    assert mark is not None and mark.sink == sink.name and mark.cycle_id == sink.commits[-1].cycle_id


def test_it_goes_on_where_the_table_stands(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    assert new_load(topic).run_once().loaded == 10
    fill(topic, 1, first=10)
    assert new_load(topic).run_once().ranges == (OffsetRange(topic, 0, 10, 11),), "lesson 19: an only new one"
    nothing = new_load(topic).run_once()
    assert (nothing.loaded, nothing.cycles, nothing.ranges) == (0, 0, ())
    assert sink.positions() == offsets(topic, 0, 0, 11)


def test_spark_is_not_waited_for_when_there_is_nothing_to_load(
    new_topic: NewTopic, bootstrap_servers: str, group: str, sink: SqliteSink
) -> None:
    over = threading.Event()

    def never() -> SparkSession:
        over.wait()
        raise AssertionError

    load = Load(never, topics=[new_topic()], group_id=group, sink=sink, bootstrap_servers=bootstrap_servers)
    try:
        assert load.run_once().cycles == 0
    finally:
        over.set()


def test_cycles_are_bounded(new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 25, partition=0)
    fill(topic, 5, partition=1)
    report = new_load(topic, max_records=10).run_once()
    assert (report.loaded, report.cycles) == (30, 3)
    assert report.ranges == (OffsetRange(topic, 0, 0, 25), OffsetRange(topic, 1, 0, 5))
    assert sink.positions() == offsets(topic, 0, 0, 25) + offsets(topic, 1, 0, 5)


def test_the_report_can_be_read(new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink) -> None:
    topic = new_topic()
    fill(topic, 3)
    report = new_load(topic).run_once()
    assert f"3 rows loaded into {sink.name}" in str(report) and f"{topic}-0 [0, 3)" in str(report)
    values = json.loads(json.dumps(report.as_dict()))
    assert values["ranges"] == [{"topic": topic, "partition": 0, "start": 0, "end": 3}]
    assert (values["loaded"], values["sink"], values["stopped"]) == (3, sink.name, False)


def test_an_observer_is_told_the_points_in_order(new_load: NewLoad, new_topic: NewTopic, fill: Fill) -> None:
    topic = new_topic()
    fill(topic, 3)
    seen: list[tuple[Point, Detail]] = []
    new_load(topic, observer=lambda point, detail: seen.append((point, detail)), schema="v STRING").run_once()
    points = [point for point, _ in seen if point not in (Point.REBALANCING, Point.TASKS_RUNNING)]
    last = points.index(Point.TASKS_STARTED)
    assert points[last - 1 : last + 6] == [
        Point.PLANNING,
        Point.TASKS_STARTED,
        Point.TASKS_DONE,
        Point.BETWEEN_TABLES,
        Point.SINK_COMMITTED,
        Point.GROUP_COMMITTED,
        Point.PLANNING,
    ]
    details = dict(seen)
    assert details[Point.SINK_COMMITTED].ranges == (OffsetRange(topic, 0, 0, 3),)
    assert details[Point.SINK_COMMITTED].cycle_id == details[Point.TASKS_STARTED].cycle_id != ""


# ---- continuous


def test_it_loads_what_comes_until_it_is_stopped(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 5)
    load = new_load(topic)
    with running(load) as background:
        until_loaded(5, load)
        fill(topic, 5, first=5)
        until_loaded(10, load)
    assert sink.positions() == offsets(topic, 0, 0, 10)
    assert background.report.stopped and background.report.loaded == 10


def stopped_at(place: Point, new_load: NewLoad, topic: str) -> Load:
    """A load that is told to stop when it gets to a point."""
    made: list[Load] = []

    def observer(point: Point, detail: Detail) -> None:
        if point is place:
            made[0].stop()

    made.append(new_load(topic, observer=observer))
    return made[0]


def test_a_stop_breaks_off_what_is_not_committed(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic()
    fill(topic, 5)
    report = stopped_at(Point.TASKS_DONE, new_load, topic).run_once()
    assert report.stopped and report.cycles == 0
    assert sink.positions() == []
    assert not admin.describe_group(group).members, "it left the group"
    assert new_load(topic).run_once().loaded == 5


def test_a_load_that_was_stopped_can_run_again(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 5)
    load = new_load(topic)
    load.stop()
    assert load.run_once().stopped, "it was asked before it began"
    report = load.run_once()
    assert not report.stopped and report.loaded == 5


def test_a_stop_lets_a_commit_end(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic()
    fill(topic, 5)
    assert stopped_at(Point.SINK_COMMITTED, new_load, topic).run_once().loaded == 5
    assert committed(admin, group, topic) == {0: 5}


def test_a_load_runs_once_at_a_time(new_load: NewLoad, new_topic: NewTopic) -> None:
    load = new_load(new_topic())
    with running(load):
        until_owned(1, load)
        with pytest.raises(MisuseError, match="already running"):
            load.run_once()


# ---- moved groups, rolled back tables


def test_a_rewind_is_followed_and_replaces(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic()
    fill(topic, 30)
    new_load(topic).run_once()
    admin.reset_offsets(group, offset=10, topics=topic)
    assert admin.group_offsets(group)[TopicPartition(topic, 0)].metadata == RESET_METADATA
    report = new_load(topic, max_records=8).run_once()
    assert report.ranges == (OffsetRange(topic, 0, 10, 30),)
    assert any("goes back from 30 to 10" in note for note in report.notes)
    assert sink.positions() == offsets(topic, 0, 0, 30)
    assert committed(admin, group, topic) == {0: 30}
    assert new_load(topic).run_once().cycles == 0, "a wish is followed once"


def test_a_skip_is_followed_and_recorded(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    fill(topic, 20, first=10)
    admin.reset_offsets(group, offset=25, topics=topic)
    report = new_load(topic).run_once()
    assert [(one.start, one.end, str(one.reason)) for one in report.lost] == [(10, 25, "skipped")]
    assert [(one.start, one.end) for one in sink.lost(group)] == [(10, 25)]
    admin.reset_offsets(group, offset=20, topics=topic)
    assert new_load(topic).run_once().records == 10, "a part of it is loaded after all"
    left = status(admin, sink, group, [topic]).lost
    assert [(one.start, one.end, str(one.reason)) for one in left] == [(10, 20, "skipped")]
    assert sink.positions() == offsets(topic, 0, 0, 10) + offsets(topic, 0, 20, 30)


def test_a_skip_that_a_consumer_made_is_refused(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    """Somebody looked at the topic with the load's group."""
    from millstream.consumer import Consumer

    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    fill(topic, 20, first=10)
    with Consumer(bootstrap_servers=admin_servers(admin), group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 30})
    with pytest.raises(DataLostError, match="would be skipped") as raised:
        new_load(topic).run_once()
    assert raised.value.ranges == ((topic, 0, 10, 30),)
    admin.reset_offsets(group, offset=10, topics=topic)
    assert new_load(topic).run_once().loaded == 20
    assert sink.positions() == offsets(topic, 0, 0, 30)


def test_lesson_9_a_table_that_was_deleted_is_loaded_again(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    sink.forget()
    report = new_load(topic).run_once()
    assert sink.positions() == offsets(topic, 0, 0, 10)
    assert any("deleted or emptied" in note for note in report.notes)


def test_lesson_12_a_consumers_offset_is_not_trusted(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    from millstream.consumer import Consumer

    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=admin_servers(admin), group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 7})
    report = new_load(topic).run_once()
    assert sink.positions() == offsets(topic, 0, 0, 10)
    assert any("not trusted" in note for note in report.notes)


class Stumbling(SqliteSink):
    """A sink that is cut off right after its first commit, which has no rows: as if the driver had died."""

    stumbled = False

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        super().commit(cycle, at)
        if not self.stumbled:
            self.stumbled = True
            raise SinkError("cut off")


def test_lesson_12_not_even_after_a_crash_in_the_first_commit(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    """With progress in the sink, the consumer's offset would look like a wish to skip."""
    from millstream.consumer import Consumer

    topic = new_topic()
    fill(topic, 10)
    with Consumer(bootstrap_servers=admin_servers(admin), group_id=group) as consumer:
        consumer.commit({TopicPartition(topic, 0): 7})
    report = new_load(topic, sink=Stumbling(sink.directory)).run_once()
    assert sink.positions() == offsets(topic, 0, 0, 10)
    assert not report.lost


def test_lesson_11_the_group_is_repaired_though_nothing_is_new(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = new_topic(partitions=2)
    fill(topic, 10)
    new_load(topic).run_once()
    admin.delete_group_offsets(group, [TopicPartition(topic, 0)])
    assert new_load(topic, starting="latest").run_once().cycles == 0
    assert committed(admin, group, topic) == {0: 10, 1: 0}


def admin_servers(admin: Admin) -> str:
    brokers = admin.describe_cluster().brokers
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def test_latest_begins_at_the_end_and_stays_there(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    assert new_load(topic, starting="latest").run_once().loaded == 0
    fill(topic, 5, first=10)
    assert new_load(topic, starting="latest").run_once().loaded == 5
    assert sink.positions() == offsets(topic, 0, 10, 15)


def test_a_group_has_one_sink(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink, group: str
) -> None:
    topic = new_topic()
    fill(topic, 10)
    new_load(topic).run_once()
    other = SqliteSink(sink.directory.with_name("other"))
    with pytest.raises(LoadFailedError, match="a group has one sink"):
        new_load(topic, sink=other).run_once()
