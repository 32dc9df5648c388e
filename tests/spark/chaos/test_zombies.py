"""A driver that is frozen, left for dead, and wakes up when others have done its work; drivers that race."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from millstream.admin import Admin
from millstream.spark.load import Detail, Point
from millstream.spark.sinks.base import Cycle
from tests.spark.burying import bury
from tests.spark.chaos.conftest import NewDriver, NewLoad
from tests.spark.chaos.places import DeltaPlace, Place
from tests.spark.chaos.records import assert_exact, assert_settled
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, Background, Pause, running
from tests.waiting import until


@pytest.mark.parametrize(
    "point", [Point.TASKS_DONE, Point.BETWEEN_TABLES], ids=lambda point: point.name.lower()
)
def test_a_zombie_wakes_up(
    point: Point,
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_driver: NewDriver,
    new_load: NewLoad,
) -> None:
    if point is Point.BETWEEN_TABLES and not isinstance(place, DeltaPlace):
        pytest.skip("PostgreSQL has one transaction")
    nth = 1 if point is Point.TASKS_DONE else 2
    with_spark = point is Point.TASKS_DONE and isinstance(place, DeltaPlace)
    zombie = new_driver(topic, place, point, nth, signal_name="SIGSTOP", with_spark=with_spark)
    zombie.wait_frozen()
    report = new_load(topic, place).run_once()
    assert sum(one.offsets for one in report.ranges) == 60, "it did the work that the zombie had begun"
    zombie.process.send_signal(signal.SIGCONT)
    assert zombie.report()["loaded"] == 0
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)


def test_two_drivers_race_for_one_commit(
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have tasks done for the same offsets; one is about to commit when the other does."""
    pause = Pause(Point.TASKS_DONE)
    sink: Any = place.sink()
    commit: Callable[[Cycle, Callable[[str], None]], None] = sink.commit

    def late(cycle: Cycle, at: Callable[[str], None]) -> None:
        if cycle.written:
            pause(Point.TASKS_DONE, Detail())
        commit(cycle, at)

    monkeypatch.setattr(sink, "commit", late)
    first = new_load(topic, place, sink=sink, properties={**QUICK, "client.id": "slow"})
    slow = Background(first.run_once)
    slow.thread.start()
    other = new_load(topic, place)
    with pause:
        pause.wait_reached()
        with running(other):
            until(lambda: first.snapshot().partitions < 2, "it shall give something up")
            bury(admin, group, "slow")  # which the group does not wait for
            until(lambda: other.snapshot().cycles >= 1, "a cycle of the other driver", LOAD_SECONDS)
            pause.let_go()
            slow.join()
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
