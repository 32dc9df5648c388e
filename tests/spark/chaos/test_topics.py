"""What happens to topics and groups while nobody looks: partitions, retention, another topic, a rewind."""

from __future__ import annotations

import pytest

from millstream.admin import Admin
from millstream.errors import DataLostError, LoadFailedError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.load import Detail, Point
from tests.spark.chaos.conftest import NewLoad
from tests.spark.chaos.places import Place
from tests.spark.chaos.records import assert_exact, assert_settled, in_place, send
from tests.spark.load.conftest import LOAD_SECONDS, running
from tests.waiting import until


def test_partitions_are_added(
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    producer: Producer,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    load = new_load(topic, place)
    with running(load):
        until(lambda: load.snapshot().cycles >= 1, "a first cycle", LOAD_SECONDS)
        admin.create_partitions(topic, 3)
        send(producer, topic, 2, 200, 230)
        until(lambda: len(in_place(place)) == 90, "the rows of the new partition", LOAD_SECONDS)
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)


def test_retention_passes_the_start(
    place: Place, topic: str, group: str, admin: Admin, producer: Producer, new_load: NewLoad
) -> None:
    new_load(topic, place).run_once()
    send(producer, topic, 0, 30, 60)
    admin.delete_records({TopicPartition(topic, 0): 40})
    with pytest.raises(DataLostError):
        new_load(topic, place).run_once()
    report = new_load(topic, place, fail_on_data_loss=False).run_once()
    assert [(one.partition, one.start, one.end) for one in report.lost] == [(0, 30, 40)]
    lost = place.sink().lost(group)
    assert [(one.topic, one.partition, one.start, one.end) for one in lost] == [(topic, 0, 30, 40)]
    expected = [*((0, n) for n in range(30)), *((0, n) for n in range(40, 60)), *((1, n) for n in range(30))]
    assert [one[:2] for one in in_place(place)] == expected
    assert_settled(admin, group, topic, place)


def test_a_topic_is_deleted_and_made_anew(
    place: Place, topic: str, admin: Admin, producer: Producer, new_load: NewLoad
) -> None:
    new_load(topic, place).run_once()
    before = in_place(place)
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=2)
    send(producer, topic, 0, 500, 510)
    with pytest.raises(LoadFailedError, match="recreated"):
        new_load(topic, place).run_once()
    assert in_place(place) == before
    new_load(topic, place, on_recreated="append").run_once()
    assert len(in_place(place)) == 70
    assert new_load(topic, place).run_once().cycles == 0


def test_a_rewind_in_the_middle(
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    producer: Producer,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    """A rewind is under way when the load is stopped; then it is rewound again, further, and other checks
    let other rows pass: rows change tables, and none is there twice.
    """
    new_load(topic, place, checks=["price > 100"]).run_once()
    assert place.rows() == []
    admin.reset_offsets(group, offset=10, topics=topic)

    def stop(point: Point, detail: Detail) -> None:
        if point is Point.SINK_COMMITTED:
            load.stop()

    load = new_load(topic, place, max_records=10, observer=stop)
    load.run_once()
    assert 0 < len(place.rows()) < 10
    admin.reset_offsets(group, "earliest", topics=topic)
    send(producer, topic, 1, 130, 140)
    new_load(topic, place, max_records=17).run_once()
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
