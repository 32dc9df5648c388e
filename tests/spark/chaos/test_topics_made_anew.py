"""A table that holds two topics of one name: positions are there twice, and each topic's rows are its own."""

from __future__ import annotations

import pytest

from millstream.admin import Admin
from millstream.producer import Producer
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.replay import EARLIER_TOPIC, replay
from millstream.spark.load.settings import Shaping
from tests.spark.chaos.conftest import NewLoad
from tests.spark.chaos.places import Place
from tests.spark.chaos.records import SHAPE, Found, in_place, send


@pytest.fixture
def old(place: Place, topic: str, admin: Admin, producer: Producer, new_load: NewLoad) -> Found:
    """What the table holds of a topic that was deleted. Its successor has 40 records, and was loaded, too."""
    new_load(topic, place).run_once()
    found = in_place(place)
    admin.delete_topics(topic)
    admin.create_topic(topic, partitions=2)
    send(producer, topic, 0, 500, 540)
    new_load(topic, place, on_recreated="append").run_once()
    assert len(in_place(place)) == 100
    return found


def test_lesson_5_a_rewind_of_the_new_topic_leaves_rows_of_the_old_one(
    place: Place, topic: str, group: str, admin: Admin, new_load: NewLoad, old: Found
) -> None:
    both = in_place(place)
    admin.reset_offsets(group, offset=5, topics=topic)
    report = new_load(topic, place, max_records=20).run_once()
    assert [(one.partition, one.start, one.end) for one in report.ranges] == [(0, 5, 40)]
    assert in_place(place) == both
    admin.reset_offsets(group, "earliest", topics=topic)
    new_load(topic, place, checks=["price > 100"]).run_once()
    assert in_place(place) == both, "all of the new topic's rows changed tables"
    good = {row["_offset"] for row in place.rows() if row["_partition"] == 0}
    assert good == {offset for partition, offset, value in old if partition == 0 and '"price": 1.5' in value}


def test_a_replay_leaves_what_was_rejected_of_the_old_topic(
    place: Place, topic: str, group: str, new_load: NewLoad, old: Found
) -> None:
    both, rejected = in_place(place), len(place.rejected())
    of_old = sum("not json" in value or '"price": -1.0' in value for _, _, value in old)
    report = replay(None, place.sink(), Pipeline(Shaping(schema=SHAPE["schema"])), group_id=group)
    cheap = sum(
        '"price": -1.0' in bytes(row["value"]).decode() and row.get("topic_id") is not None
        for row in place.rejected()
    )
    assert (report.examined, report.reasons[EARLIER_TOPIC], cheap) == (rejected, of_old, 0)
    assert report.readmitted > 0 and len(place.rejected()) == rejected - report.readmitted
    assert in_place(place) == both
