"""Ways in which other loaders have lost or doubled rows, by the numbers of docs/load-scenarios.md: from end
to end, with a real broker, real Spark and real tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from millstream.admin import Admin
from millstream.errors import DataLostError, LoadFailedError
from millstream.model import TopicPartition
from millstream.producer import Producer
from millstream.spark.load import Detail, Load, Point
from millstream.spark.load.engine.retries import RetryBudget
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import SchemaConflictError, SinkError
from tests.conftest import NewTopic
from tests.spark.chaos.records import SHAPE, assert_exact, assert_settled, in_place, is_good, send
from tests.spark.load.conftest import LOAD_SECONDS, QUICK, running, until_owned
from tests.spark.sinks.postgres_site import PostgresSite
from tests.spark.sinks.test_delta import DeltaSite
from tests.waiting import SECONDS, until

Site = DeltaSite | PostgresSite
Fault = Callable[[], AbstractContextManager[None]]

CYCLE = {"max_records": 24}
"""Three cycles for the 60 records of ``topic``, of 12 records of each partition."""
GOOD = sum(is_good(number) for number in [*range(30), *range(100, 130)])


@pytest.fixture(params=["delta", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == "delta":
        yield DeltaSite(str(tmp_path / "lake"), monkeypatch)
        return
    site = PostgresSite(request.getfixturevalue("postgres_url"))
    yield site
    site.close()


class World:
    """A topic, a group, tables, and loads of the one into the other."""

    def __init__(self, spark: Any, servers: str, admin: Admin, topic: str, group: str, site: Site) -> None:
        self.admin = admin
        self.topic = topic
        self.group = group
        self.site = site
        self.servers = servers
        self._spark = spark

    def load(self, **settings: Any) -> Load:
        settings = {"sink": self.site.sink(), "properties": QUICK, **SHAPE, **settings}
        return Load(
            self._spark,
            topics=[self.topic],
            group_id=self.group,
            bootstrap_servers=self.servers,
            **settings,
        )

    def committed(self) -> dict[int, int]:
        """The group's offsets."""
        found = self.admin.group_offsets(self.group, self.topic)
        return {one.partition: at.offset for one, at in found.items()}

    def assert_exact(self) -> None:
        assert_exact(self.site, self.servers, self.topic)
        assert_settled(self.admin, self.group, self.topic, self.site)


@pytest.fixture
def world(spark: Any, bootstrap_servers: str, admin: Admin, topic: str, group: str, site: Site) -> World:
    return World(spark, bootstrap_servers, admin, topic, group, site)


class During:
    """An observer: the commit of the second cycle meets with a fault, ``times`` times. What the group says
    then, when the load plans anew, is kept.
    """

    def __init__(self, world: World, fault: Fault, times: int = 1) -> None:
        self._world = world
        self._fault = fault
        self._left = times
        self._stack = ExitStack()
        self._cycles = 0
        self._struck = False
        self.committed: list[dict[int, int]] = []

    def __call__(self, point: Point, detail: Detail) -> None:
        if point is Point.TASKS_DONE:
            self._cycles += 1
            if self._cycles >= 2 and self._left:
                self._left -= 1
                self._struck = True
                self._stack.enter_context(self._fault())
        elif point is Point.PLANNING:
            self._stack.close()
            if self._struck:
                self._struck = False
                self.committed.append(self._world.committed())

    def close(self) -> None:
        self._stack.close()


@pytest.mark.parametrize("site", ["delta"], indirect=True)  # it is not about the sink
def test_lesson_4_a_rebalance_that_only_revokes_ends_no_commits(world: World, producer: Producer) -> None:
    """The second driver takes a partition of the first, which is given none in return, and goes on."""
    first, second = world.load(), world.load()

    def settled() -> bool:
        return len(in_place(world.site)) == sum(ends) and world.committed() == dict(enumerate(ends))

    ends = [30, 30]
    with running(first):
        until_owned(2, first)
        until(settled, "what was there is loaded", LOAD_SECONDS)
        with running(second):
            until_owned(1, first, second)
            for partition in range(2):
                send(producer, world.topic, partition, 200, 210)
            ends = [40, 40]
            until(settled, "each loads its own, and the group knows", LOAD_SECONDS)
        until_owned(2, first)
        for partition in range(2):
            send(producer, world.topic, partition, 300, 305)
        ends = [45, 45]
        until(settled, "the first loads all again", LOAD_SECONDS)
    world.assert_exact()


def test_lesson_7_a_commit_that_did_nothing_is_no_success(world: World) -> None:
    """The store says yes, and has done nothing: the load reads back, and does the cycle again."""
    during = During(world, world.site.swallowing)
    report = world.load(observer=during, **CYCLE).run_once()
    assert during.committed == [{0: 12, 1: 12}], "the group was told nothing"
    assert (report.cycles, report.loaded) == (3, GOOD)
    world.assert_exact()


def test_lesson_8_an_outcome_that_is_unknown_is_found_out(world: World) -> None:
    """The store has done it, and the answer is lost: the load finds that out, and goes on behind it."""
    during = During(world, world.site.answer_lost)
    tasks: list[Point] = []

    def observe(point: Point, detail: Detail) -> None:
        during(point, detail)
        if point is Point.TASKS_DONE:
            tasks.append(point)

    report = world.load(observer=observe, **CYCLE).run_once()
    assert during.committed == [{0: 24, 1: 24}]
    assert (report.cycles, report.loaded, len(tasks)) == (3, GOOD, 3), "nothing was loaded again"
    world.assert_exact()


def test_lesson_9_a_table_that_was_deleted_is_loaded_again(world: World) -> None:
    """The group's offsets say that all is loaded. Rejected rows are still there, and are not doubled."""
    world.load(**CYCLE).run_once()
    before = in_place(world.site)
    if isinstance(world.site, PostgresSite):
        world.site.run("DROP TABLE {}")
    else:
        shutil.rmtree(world.site.path)
    assert world.site.rows() == [] and len(world.site.rejected()) == 60 - GOOD
    world.load().run_once()
    assert in_place(world.site) == before
    world.assert_exact()


@pytest.mark.parametrize("site", ["postgresql"], indirect=True)
def test_lesson_9_progress_that_was_deleted_by_hand_is_noticed(world: World) -> None:
    """The rows are still there: starting over would double them. Without the rows it starts over."""
    assert isinstance(world.site, PostgresSite)
    world.load().run_once()
    before = in_place(world.site)
    world.site.run("DELETE FROM {}.millstream_progress", only_schema=True)
    with pytest.raises(LoadFailedError, match="was deleted, and loading from 0 would add them a second time"):
        world.load().run_once()
    assert in_place(world.site) == before
    world.site.run("TRUNCATE {}")
    world.load().run_once()
    assert in_place(world.site) == before


@pytest.mark.parametrize("site", ["delta"], indirect=True)
def test_lesson_9_a_table_that_was_restored_is_loaded_from_there(world: World) -> None:
    assert isinstance(world.site, DeltaSite)
    world.load(**CYCLE).run_once()
    before = in_place(world.site)
    table = DeltaTable(str(world.site.path))
    table.restore(table.version() - 2)
    assert 0 < len(world.site.rows()) < GOOD
    report = world.load().run_once()
    assert 0 < report.loaded < GOOD and in_place(world.site) == before
    world.assert_exact()


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_lesson_10_a_first_run_without_records_forgets_nothing(
    world: World, new_topic: NewTopic, producer: Producer, starting: str
) -> None:
    world.topic = new_topic(partitions=2)
    for _ in range(2):
        report = world.load(starting=starting).run_once()
        assert (report.cycles, report.loaded, in_place(world.site)) == (0, 0, [])
        assert world.committed() == {0: 0, 1: 0}
    send(producer, world.topic, 1, 0, 10)
    assert world.load(starting=starting).run_once().records == 10
    world.assert_exact()


def test_lesson_18_offsets_never_come_before_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses twice, so the load fails: progress and group are where the rows are."""
    monkeypatch.setattr(RetryBudget, "_left", lambda _: 0.0)  # the time for what passes is over at once
    seen: list[tuple[Point, dict[int, int], int]] = []
    during = During(world, world.site.refusing, times=2)

    def observe(point: Point, detail: Detail) -> None:
        during(point, detail)
        if point in (Point.SINK_COMMITTED, Point.GROUP_COMMITTED):
            seen.append((point, world.committed(), len(world.site.rows())))

    with pytest.raises(LoadFailedError, match="running it again is safe") as raised:
        world.load(observer=observe, **CYCLE).run_once()
    during.close()
    (first, before, rows), (second, after, _) = seen
    assert (first, before) == (Point.SINK_COMMITTED, {0: 0, 1: 0}), "rows first"
    assert (second, after) == (Point.GROUP_COMMITTED, {0: 12, 1: 12}), "then the group"
    assert world.committed() == {0: 12, 1: 12} and len(world.site.rows()) == rows == raised.value.committed
    world.load(**CYCLE).run_once()
    world.assert_exact()


def test_lesson_19_a_log_that_starts_above_zero_and_an_only_new_record(
    world: World, producer: Producer
) -> None:
    world.admin.delete_records({TopicPartition(world.topic, 0): 20, TopicPartition(world.topic, 1): 29})
    report = world.load().run_once()
    assert report.records == 11 and not report.lost, "what was deleted before the first load is no loss"
    world.assert_exact()
    send(producer, world.topic, 1, 130, 131)
    assert world.load().run_once().records == 1
    world.assert_exact()


def test_lesson_20_a_first_load_that_fails_skips_nothing(world: World) -> None:
    """The table that is there lacks a column, and nothing is stored yet."""
    pipeline = Pipeline(Shaping(schema="id LONG", checks=["id >= 0"]))
    world.site.sink().prepare("another", pipeline.tables(None))
    with pytest.raises(SchemaConflictError, match="price"):
        world.load().run_once()
    assert in_place_nothing(world.site) and world.committed() == {}
    assert world.load(add_columns=True).run_once().records == 60
    world.assert_exact()


def in_place_nothing(site: Site) -> bool:
    return site.rows() == [] and site.rejected() == []


@pytest.mark.parametrize("site", ["delta"], indirect=True)  # it is not about the sink
def test_lesson_21_a_range_that_goes_while_it_is_read_is_a_loss(world: World) -> None:
    """Retention strikes between plan and tasks: they do not succeed with what is left."""

    def strike(point: Point, detail: Detail) -> None:
        if point is Point.TASKS_STARTED:
            world.admin.delete_records({TopicPartition(world.topic, 1): 7})

    with pytest.raises(DataLostError) as raised:
        world.load(observer=strike).run_once()
    assert raised.value.ranges == ((world.topic, 1, 0, 7),)
    assert in_place_nothing(world.site)
    report = world.load(fail_on_data_loss=False).run_once()
    assert [(one.partition, one.start, one.end) for one in report.lost] == [(1, 0, 7)]
    assert [(one.partition, one.start, one.end) for one in world.site.sink().lost(world.group)] == [(1, 0, 7)]
    world.assert_exact()


def test_lesson_22_rejected_rows_are_there_once_and_a_tail_of_them_is_passed(
    world: World, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail is only bad records. Its commit is refused: of Delta's two tables, only by the second."""
    monkeypatch.setattr(RetryBudget, "_left", lambda _: 0.0)  # the time for what passes is over at once
    world.load().run_once()
    for number in range(5):
        producer.send(world.topic, b"bad %d" % number, key=b"k", partition=1).result(SECONDS)
    with world.site.refusing(), pytest.raises(LoadFailedError):
        world.load().run_once()
    assert world.committed() == {0: 30, 1: 30}
    report = world.load().run_once()
    assert (report.loaded, report.rejected) == (0, 5)
    world.assert_exact()
    tail = [row for row in world.site.rejected() if (row["partition"], row["offset"]) >= (1, 30)]
    assert sorted((row["topic"], row["offset"], bytes(row["value"]), bytes(row["key"])) for row in tail) == [
        (world.topic, 30 + number, b"bad %d" % number, b"k") for number in range(5)
    ]
    assert all(row["reason"].startswith("not JSON") for row in tail)
    assert world.load().run_once().cycles == 0, "nothing is left"


@pytest.mark.parametrize("site", ["delta"], indirect=True)
def test_lesson_23_a_table_that_would_forget_its_progress_is_refused(world: World) -> None:
    assert isinstance(world.site, DeltaSite)
    world.load(**CYCLE).run_once()
    name = "delta.setTransactionRetentionDuration"
    table = DeltaTable(str(world.site.path))
    table.alter.set_table_properties({name: "interval 1 days"}, raise_if_not_exists=False)
    before = in_place(world.site)
    with pytest.raises(SinkError, match=rf"{name}.*UNSET"):
        world.load().run_once()
    assert in_place(world.site) == before
