"""The driver is killed with SIGKILL at each point; another one goes on. Nothing is lost, nothing doubled."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.admin import Admin
from millstream.errors import GroupIdNotFoundError
from millstream.spark.load import Point
from tests.spark.chaos.conftest import NewDriver, NewLoad
from tests.spark.chaos.places import Place, PostgresPlace
from tests.spark.chaos.records import assert_exact, assert_settled
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, Background
from tests.waiting import until

CYCLE: dict[str, Any] = {"max_records": 24}
"""Three cycles for the 60 records."""
MISSED = {**QUICK, "session.timeout.ms": 3_000}
OF_THE_DRIVER: dict[Point, dict[str, Any]] = {Point.PLANNING: {"properties": MISSED}}
"""This one is not buried: the group misses it when its session ends, which may end before without harm."""


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        (Point.PLANNING, 4),  # anchor, repair and a first cycle were planned before
        (Point.TASKS_RUNNING, 1),
        (Point.TASKS_DONE, 2),
        (Point.BETWEEN_TABLES, 3),  # of the second cycle: the anchor has tables, too
        (Point.SINK_COMMITTED, 2),
        (Point.GROUP_COMMITTED, 2),
        (Point.COMPACTING, 1),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Point) else "",
)
def test_killed(
    point: Point,
    nth: int,
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_driver: NewDriver,
    new_load: NewLoad,
) -> None:
    has_files = not isinstance(place, PostgresPlace)
    if point is Point.BETWEEN_TABLES and not has_files:
        pytest.skip("PostgreSQL has one transaction: see test_killed_in_the_middle_of_a_transaction")
    if point is Point.COMPACTING and not has_files:
        pytest.skip("PostgreSQL has no files to join")
    settings = CYCLE | {"compact": has_files}
    with_spark = point is Point.TASKS_RUNNING
    driver = new_driver(
        topic, place, point, nth, with_spark=with_spark, **settings, **OF_THE_DRIVER.get(point, {})
    )
    driver.wait_killed()
    new_load(topic, place, **settings).run_once()
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)


def test_killed_in_a_rebalance(
    place: Place,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_driver: NewDriver,
    new_load: NewLoad,
) -> None:
    """The second time the group shares out is when the other driver comes for half of the partitions."""
    driver = new_driver(topic, place, Point.REBALANCING, 2, once=False, max_records=4)
    until(
        lambda: driver.process.poll() is not None or admin.describe_group(group).members,
        lambda: f"it joins: {driver.output}",
        LOAD_SECONDS,
        or_error=GroupIdNotFoundError,
    )
    other = Background(new_load(topic, place, **CYCLE).run_once)
    other.thread.start()
    driver.wait_killed()
    other.join()
    new_load(topic, place).run_once()  # it may have died last, between the sink and the group
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)


def test_killed_in_the_middle_of_a_transaction(
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    postgres_url: str,
    request: pytest.FixtureRequest,
    new_driver: NewDriver,
    new_load: NewLoad,
) -> None:
    place = PostgresPlace(postgres_url)
    request.addfinalizer(place.close)
    new_load(topic, place, starting="latest").run_once()
    admin.reset_offsets(group, "earliest", topics=topic)
    with place.commits_held() as is_held:
        driver = new_driver(topic, place, Point.COMPACTING, **CYCLE)  # which it does not get to
        until(lambda: is_held() or driver.process.poll() is not None, "its transaction", LOAD_SECONDS)
        driver.process.kill()
        driver.wait_killed()
        assert place.rows() == []
    new_load(topic, place, **CYCLE).run_once()
    assert_exact(place, bootstrap_servers, topic)
    assert_settled(admin, group, topic, place)
