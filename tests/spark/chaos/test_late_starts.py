"""A load that began at the end of a log, or after a reset, and was rewound to before that later: what lies
below its first start was never loaded, though its table goes further.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from millstream.admin import Admin
from millstream.errors import DataLostError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.load import Detail, Load, Point
from millstream.spark.load import load as load_module
from tests.conftest import NewTopic
from tests.spark.chaos.driver import HerePipeline, Idle
from tests.spark.chaos.places import Place
from tests.spark.chaos.records import SHAPE, assert_settled, in_place, send
from tests.spark.load.conftest import QUICK


class World:
    """A topic whose first hundred records were there before the first load, and tables that begin there. The
    load was rewound to the beginning and has come to 20 of that.
    """

    def __init__(self, servers: str, admin: Admin, topic: str, group: str, place: Place) -> None:
        self._servers = servers
        self.admin = admin
        self.topic = topic
        self.group = group
        self.place = place

    def load(self, **settings: Any) -> Load:
        settings = {"sink": self.place.sink(), "properties": QUICK, **SHAPE, **settings}
        return Load(
            cast("Any", Idle()),
            topics=[self.topic],
            group_id=self.group,
            bootstrap_servers=self._servers,
            **settings,
        )

    def one_cycle(self, records: int) -> None:
        """Load so many, and stop."""

        def observe(point: Point, detail: Detail) -> None:
            if point is Point.GROUP_COMMITTED:
                load.stop()

        load = self.load(max_records=records, observer=observe)
        load.run_once()

    def reset(self, offset: int) -> None:
        self.admin.reset_offsets(self.group, offset=offset, topics=self.topic)

    def lost(self) -> list[tuple[int, int, str]]:
        return [(one.start, one.end, str(one.reason)) for one in self.place.sink().lost(self.group)]

    def loaded(self) -> list[int]:
        return [offset for _, offset, _ in in_place(self.place)]


@pytest.fixture
def world(
    bootstrap_servers: str,
    admin: Admin,
    producer: Producer,
    new_topic: NewTopic,
    group: str,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    monkeypatch.setitem(vars(load_module), "Pipeline", HerePipeline)
    world = World(bootstrap_servers, admin, new_topic(), group, place)
    send(producer, world.topic, 0, 0, 100)
    world.load(starting="latest").run_once()
    send(producer, world.topic, 0, 100, 110)
    world.load(starting="latest").run_once()
    world.reset(0)
    world.one_cycle(20)
    assert world.loaded() == [*range(20), *range(100, 110)]
    return world


def test_retention_passes_a_rewind_to_before_the_first_start(world: World) -> None:
    world.admin.delete_records({TopicPartition(world.topic, 0): 60})
    with pytest.raises(DataLostError, match=r"-0 \[20, 60\) was deleted before it was loaded") as raised:
        world.load().run_once()
    assert raised.value.ranges == ((world.topic, 0, 20, 60),)
    report = world.load(fail_on_data_loss=False).run_once()
    assert [(one.start, one.end) for one in report.lost] == [(20, 60)]
    assert world.lost() == [(20, 60, "retention")]
    assert world.loaded() == [*range(20), *range(60, 110)]
    assert_settled(world.admin, world.group, world.topic, world.place)


def test_a_skip_in_a_rewind_to_before_the_first_start(world: World) -> None:
    world.reset(60)
    world.load().run_once()
    assert world.lost() == [(20, 60, "skipped")]
    assert world.loaded() == [*range(20), *range(60, 110)]
    assert_settled(world.admin, world.group, world.topic, world.place)


def test_a_rewind_that_has_come_back_leaves_nothing_to_lose(world: World) -> None:
    """In a second one, what it skips is in the table."""
    world.load(max_records=30).run_once()
    assert world.loaded() == list(range(110))
    world.reset(0)
    world.one_cycle(20)
    world.reset(90)
    assert world.load().run_once().lost == () and world.lost() == []
    assert world.loaded() == list(range(110))
