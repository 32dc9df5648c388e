"""PostgreSQL itself crashes in the middle of a load, and loses what was staged: unlogged tables are empty
afterwards. The load goes on, or says what failed; the rows are right in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.admin import Admin
from millstream.errors import LoadFailedError
from millstream.spark.load import Detail, Point
from millstream.spark.load.engine.retries import RetryBudget
from tests.spark.chaos.conftest import NewLoad
from tests.spark.chaos.crashing import CrashingServer
from tests.spark.chaos.places import PostgresPlace
from tests.spark.chaos.records import assert_exact, assert_settled, is_good
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, Background
from tests.waiting import until

GOOD = sum(is_good(number) for number in [*range(30), *range(100, 130)])
CYCLE = {"max_records": 24}
"""Three cycles for the 60 records."""
PATIENT = {**QUICK, "default.api.timeout.ms": 45_000}
"""How long a load tries what may pass."""
TRIES = 4


@pytest.fixture
def database(server: CrashingServer) -> Iterator[PostgresPlace]:
    server.start()  # if a test has left it as it was
    place = PostgresPlace(server.url)
    yield place
    place.close()


class Second:
    """Knows when the second cycle comes to a point."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.cycles: list[str] = []

    def is_due(self, point: Point, detail: Detail) -> bool:
        if point is not self.point or not detail.cycle_id or detail.cycle_id in self.cycles:
            return False
        self.cycles.append(detail.cycle_id)
        return len(self.cycles) == 2


@pytest.mark.parametrize(
    ("point", "is_flushed"),
    [
        (Point.TASKS_STARTED, False),
        (Point.TASKS_DONE, False),
        (Point.TASKS_DONE, True),
        (Point.SINK_COMMITTED, False),
    ],
    ids=["tasks_started", "tasks_done", "tasks_done_flushed", "sink_committed"],
)
def test_the_server_crashes_and_the_load_goes_on(
    point: Point,
    is_flushed: bool,
    server: CrashingServer,
    database: PostgresPlace,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    """What tasks have staged is gone: with its tables, or, once the server has flushed, these are there and
    empty.
    """
    second = Second(point)

    def crash(point: Point, detail: Detail) -> None:
        if second.is_due(point, detail):
            if is_flushed:
                server.flush()
            server.restart()

    report = new_load(topic, database, observer=crash, **CYCLE).run_once()
    assert len(second.cycles) >= 2, "it came to that"
    assert report.loaded == GOOD
    assert_exact(database, bootstrap_servers, topic)
    assert_settled(admin, group, topic, database)


def test_the_server_crashes_in_the_middle_of_a_commit(
    server: CrashingServer,
    database: PostgresPlace,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    """Progress has moved and rows are there, in a transaction that never ends. What held it up is forgotten
    by the server, too, so that the next one ends.
    """
    new_load(topic, database, starting="latest").run_once()
    admin.reset_offsets(group, "earliest", topics=topic)
    load = Background(new_load(topic, database).run_once)
    with database.commits_held() as is_held:
        load.thread.start()
        until(lambda: is_held() or not load.thread.is_alive(), "its transaction", LOAD_SECONDS)
        assert load.thread.is_alive(), load.join()
        assert database.rows() == []
        server.restart()
    load.join()
    assert_exact(database, bootstrap_servers, topic)
    assert_settled(admin, group, topic, database)


def test_the_server_takes_its_time(
    server: CrashingServer,
    database: PostgresPlace,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
) -> None:
    """A restart is longer than a moment: the load looks again and again, and is there when it is over."""
    second = Second(Point.TASKS_DONE)
    plans = 0

    def away(point: Point, detail: Detail) -> None:
        nonlocal plans
        if second.is_due(point, detail):
            server.crash()
        elif point is Point.PLANNING and len(second.cycles) == 2:
            plans += 1
            if plans == 3:
                server.start()

    report = new_load(topic, database, observer=away, **CYCLE).run_once()
    assert plans >= 3 and report.loaded == GOOD
    assert_exact(database, bootstrap_servers, topic)
    assert_settled(admin, group, topic, database)


def test_the_server_stays_away(
    server: CrashingServer,
    database: PostgresPlace,
    topic: str,
    group: str,
    admin: Admin,
    bootstrap_servers: str,
    new_load: NewLoad,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The load fails, and says all that somebody has to know who is called at night."""
    given: set[float] = set()

    def left(retries: RetryBudget) -> float:
        """Its time is over after so many tries: how many there are in a time depends on the machine."""
        given.add(retries._seconds)
        return float(retries._failures < TRIES)

    monkeypatch.setattr(RetryBudget, "_left", left)
    second = Second(Point.TASKS_DONE)

    def crash(point: Point, detail: Detail) -> None:
        if second.is_due(point, detail):
            server.crash()

    with pytest.raises(LoadFailedError) as raised:
        new_load(topic, database, observer=crash, properties=PATIENT, **CYCLE).run_once()
    assert given == {45.0}
    text = str(raised.value)
    assert f"(tried {TRIES} times in" in text
    for partition in range(2):
        assert f"{topic}-{partition} [12, 24)" in text
    assert database.sink().name in text and raised.value.sink == database.sink().name
    assert raised.value.ranges == ((topic, 0, 12, 24), (topic, 1, 12, 24))
    assert 0 < raised.value.committed < GOOD and f"committed {raised.value.committed} rows" in text
    assert "running it again is safe" in text
    server.start()
    assert len(database.rows()) == raised.value.committed
    report = new_load(topic, database).run_once()
    assert report.loaded == GOOD - raised.value.committed
    assert_exact(database, bootstrap_servers, topic)
    assert_settled(admin, group, topic, database)
