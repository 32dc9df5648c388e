"""Plans: decisions for all partitions at once."""

from __future__ import annotations

import pytest

from millstream.errors import DataLostError, LoadFailedError
from millstream.model import RESET_METADATA, OffsetAndMetadata, TopicPartition
from millstream.spark.load.decisions.commit_metadata import CommitMetadata
from millstream.spark.load.decisions.cycles import Backlog
from millstream.spark.load.decisions.starts import Rules
from millstream.spark.load.engine.planning import Aligned, LoadPlan, Planner
from millstream.spark.load.engine.topics import LoadedTopics
from millstream.spark.sinks.base import Progress, Standing
from tests.unit.spark.load.world import ID, ID_HEX, OTHER_ID, Clock, FakeBrokers, FakeSink, as_sink

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class World:
    def __init__(self, logs: list[tuple[int, int]], topic_id: str = ID, **rules: str | bool) -> None:
        self.brokers = FakeBrokers({"orders": (topic_id, logs)})
        self.sink = FakeSink()
        self.rules = Rules("g", self.sink.name, **rules)  # type: ignore[arg-type]
        self.aligned: Aligned | None = None

    def plan(self, *owned: TopicPartition, read_committed: bool = False) -> LoadPlan:
        clock = Clock()
        topics = LoadedTopics(
            self.brokers, ["orders"], read_committed=read_committed, clock=clock, sleep=clock.sleep
        )
        return Planner(self.rules, topics, as_sink(self.sink), self.aligned).plan(owned)

    def commit(self, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        self.brokers.group[partition] = OffsetAndMetadata(
            offset, metadata or str(CommitMetadata("c", self.sink.name))
        )


def test_only_what_is_owned_is_planned() -> None:
    world = World([(0, 10), (0, 20)])
    world.sink.stand("orders", 0, 4)
    world.sink.stand("orders", 1, 5)
    world.commit(ONE, 5)
    plan = world.plan(ONE)
    assert list(plan.starts) == [ONE]
    assert plan.backlogs({ZERO: 10, ONE: 20}) == [Backlog(ONE, 5, 20)]
    assert plan.position(ZERO) == 4
    assert (plan.lag, plan.repairs, plan.anchors) == (15, {}, [])


def test_a_group_whose_other_partitions_go_into_another_sink_is_refused() -> None:
    """Each of two loads would have a part of the topic, and both would end well."""
    world = World([(0, 10), (0, 20)])
    world.commit(ONE, 0, str(CommitMetadata("start", "delta:/other")))
    with pytest.raises(
        LoadFailedError, match=r"group g loads orders into delta:/other, and a group has one.*\(partition 1\)"
    ):
        world.plan(ZERO).raise_refusals("fake", 0)


def test_what_concerns_a_whole_topic_is_said_once() -> None:
    world = World([(0, 10)] * 6)
    for partition in (0, 1, 2, 5):
        world.commit(TopicPartition("orders", partition), 0, str(CommitMetadata("start", "delta:/other")))
    with pytest.raises(LoadFailedError) as refused:
        world.plan(ZERO, ONE).raise_refusals("fake", 0)
    assert str(refused.value).count("a group has one sink") == 1
    assert "(partitions 0 to 2, 5)" in str(refused.value)


def test_a_second_group_of_one_table_is_refused() -> None:
    world = World([(0, 10), (0, 20)])
    world.sink.others = {"orders": frozenset({"h"})}
    with pytest.raises(LoadFailedError, match=r"group h has loaded orders.* \(partitions 0 and 1\)"):
        world.plan(ZERO, ONE).raise_refusals("fake", 0)
    world.commit(ZERO, 4, RESET_METADATA)
    world.commit(ONE, 5, RESET_METADATA)
    assert {one: start.offset for one, start in world.plan(ZERO, ONE).starts.items()} == {ZERO: 4, ONE: 5}


def test_a_group_that_has_progress_goes_on_beside_another() -> None:
    """Also in a partition that was added since."""
    world = World([(0, 10), (0, 20)])
    world.sink.others = {"orders": frozenset({"h"})}
    world.sink.stand("orders", 0, 4)
    assert {one: start.offset for one, start in world.plan(ZERO, ONE).starts.items()} == {ZERO: 4, ONE: 0}


def test_a_table_that_was_moved_is_not_another() -> None:
    """The driver of the other partition has yet to tell the group of the new place."""
    world = World([(0, 10), (0, 20)])
    world.sink.stand("orders", 0, 4)
    world.sink.stand("orders", 1, 5)
    world.commit(ONE, 5, str(CommitMetadata("c", "delta:/before")))
    assert world.plan(ZERO).repairs == {ZERO: 4}


def test_the_group_is_repaired() -> None:
    world = World([(0, 10)])
    world.sink.stand("orders", 0, 4)
    assert world.plan(ZERO).repairs == {ZERO: 4}


def test_a_first_time_is_anchored() -> None:
    plan = World([(3, 10)]).plan(ZERO)
    assert plan.anchors == [ZERO] and plan.repairs == {}
    assert plan.position(ZERO) is None


def test_lesson_13_latest_is_one_moment_for_the_whole_topic() -> None:
    """Or a second driver, which comes later, would take its partitions for new ones."""
    world = World([(0, 10), (0, 20)], starting="latest")
    plan = world.plan(ZERO)
    assert {one: start.offset for one, start in plan.starts.items()} == {ZERO: 10, ONE: 20}


def test_lesson_13_a_partition_that_comes_later_is_read_from_its_beginning() -> None:
    world = World([(0, 10), (0, 20)], starting="latest")
    world.sink.stand("orders", 0, 10)
    assert world.plan(ZERO, ONE).starts[ONE].offset == 0


def test_lesson_22_rejected_rows_that_came_first_are_replaced() -> None:
    world = World([(0, 100)])
    world.sink.progress[ZERO] = Standing(Progress(20, 20, ID_HEX), Progress(60, 60, ID_HEX))
    plan = world.plan(ZERO)
    assert plan.backlogs({ZERO: 100}) == [Backlog(ZERO, 20, 100)]
    advance = plan.advance(ZERO, 20, 40)
    assert advance.replaces(advance.expected.rejected) and not advance.replaces(advance.expected.rows)
    assert advance.after(advance.expected.rejected) == Progress(40, 60, ID_HEX), "the rest comes later"


def test_a_rewind_of_aggregates_begins_where_a_range_began() -> None:
    world = World([(0, 100)])
    world.sink.stand("orders", 0, 80)
    world.commit(ZERO, 45, RESET_METADATA)
    world.aligned = lambda partition, offset: 40
    assert world.plan(ZERO).starts[ZERO].offset == 40
    world.aligned = lambda partition, offset: offset
    assert world.plan(ZERO).starts[ZERO].offset == 45


@pytest.mark.parametrize("wanted", [45, 10])
def test_a_rewind_of_aggregates_into_a_range_that_retention_has_cut_is_refused(wanted: int) -> None:
    world = World([(42, 100)])
    world.sink.stand("orders", 0, 80)
    world.commit(ZERO, wanted, RESET_METADATA)
    world.aligned = lambda partition, offset: 40
    plan = world.plan(ZERO)
    assert not plan.starts
    with pytest.raises(LoadFailedError, match=r"row stamped 40 aggregates records that retention.* to 80, "):
        plan.raise_refusals("fake:sink", 0)
    world.commit(ZERO, 80, RESET_METADATA)
    assert world.plan(ZERO).starts[ZERO].offset == 80, "the remedy"


@pytest.mark.parametrize("wanted", [60, 80, 90])
def test_a_rewind_of_aggregates_is_not_left_half_way(wanted: int) -> None:
    """The row stamped 0 stood for fifty records, and was made anew of the first thirty."""
    world = World([(0, 100)])
    world.sink.stand("orders", 0, 30, high=80)
    world.aligned = lambda partition, offset: min(offset, 50)
    world.commit(ZERO, wanted, RESET_METADATA)
    with pytest.raises(
        LoadFailedError, match=f"cannot continue at {wanted}.* has reached 30 of 80.* to 30 or"
    ):
        world.plan(ZERO).raise_refusals("fake:sink", 0)
    world.commit(ZERO, 30, RESET_METADATA)
    assert world.plan(ZERO).starts[ZERO].offset == 30, "the remedy"
    world.commit(ZERO, 10, RESET_METADATA)
    world.aligned = lambda partition, offset: 0
    assert world.plan(ZERO).starts[ZERO].offset == 0


def test_a_rewind_of_aggregates_that_retention_has_cut_short() -> None:
    """No offset would help: so none is advised."""
    world = World([(60, 100)])
    world.sink.stand("orders", 0, 50, high=80)
    world.aligned = lambda partition, offset: min(offset, 50)
    world.commit(ZERO, 60, RESET_METADATA)
    with pytest.raises(
        LoadFailedError, match=r"has reached 50 of 80, and the log now begins at 60.* another table"
    ):
        world.plan(ZERO).raise_refusals("fake:sink", 0)


LATE = Progress(20, 110, ID_HEX, low_offset=0, gap_end=100)
"""It began at 100, was rewound, and has come to 20 of that."""


@pytest.mark.parametrize(
    ("wanted", "row", "start"), [(60, 0, 60), (60, 45, 45), (105, 100, 100), (130, 100, 130), (15, 0, 0)]
)
def test_aggregates_of_a_load_that_began_late_are_whole_up_to_where_it_stands(
    wanted: int, row: int, start: int
) -> None:
    """What comes next was never loaded, so that no row is half made: it may be skipped."""
    world = World([(0, 200)])
    world.sink.progress[ZERO] = Standing(LATE, LATE)
    world.commit(ZERO, wanted, RESET_METADATA)
    world.aligned = lambda partition, offset: row
    assert world.plan(ZERO).starts[ZERO].offset == start


def test_a_commit_says_where_what_it_records_as_lost_begins() -> None:
    world = World([(50, 100), (0, 100)], fail_on_data_loss=False)
    world.commit(ZERO, 10, RESET_METADATA)
    plan = world.plan(ZERO, ONE)
    assert plan.advance(ZERO, 50, 50).lost_from == 10 and plan.advance(ONE, 0, 0).lost_from is None


def test_an_aggregate_of_a_topic_made_anew_begins_where_it_begins() -> None:
    """Rows of the old one say nothing of the new one's offsets."""
    world = World([(5, 100)], topic_id=OTHER_ID, on_recreated="append")
    world.sink.stand("orders", 0, 30, high=80)
    world.aligned = lambda partition, offset: 0
    assert world.plan(ZERO).starts[ZERO].offset == 5


@pytest.mark.parametrize("now", [{"orders": (OTHER_ID, [(0, 10)])}, {}])
def test_a_plan_holds_as_long_as_the_topic_is_the_same(
    now: dict[str, tuple[str, list[tuple[int, int]]]],
) -> None:
    world = World([(0, 10)])
    topics = LoadedTopics(world.brokers, ["orders"])
    planner = Planner(world.rules, topics, as_sink(world.sink))
    plan = planner.plan([ZERO])
    assert planner.still_holds(plan, [ZERO])
    world.brokers.topics = now
    assert not planner.still_holds(plan, [ZERO])


def test_all_losses_are_told_in_one_error() -> None:
    world = World([(50, 100), (60, 100)])
    world.sink.stand("orders", 0, 10)
    world.sink.stand("orders", 1, 20)
    with pytest.raises(DataLostError, match=r"orders-0 \[10, 50\).*orders-1 \[20, 60\)") as raised:
        world.plan(ZERO, ONE).raise_refusals("fake:sink", 1234)
    assert "This run had committed 1,234 rows to fake:sink before: running it again is safe" in str(
        raised.value
    )
    assert raised.value.ranges == (("orders", 0, 10, 50), ("orders", 1, 20, 60))


def test_other_refusals_name_the_sink() -> None:
    world = World([(0, 100)], topic_id=OTHER_ID)
    world.sink.stand("orders", 0, 10)
    with pytest.raises(LoadFailedError, match="recreated") as raised:
        world.plan(ZERO).raise_refusals("fake:sink", 7)
    assert (raised.value.sink, raised.value.committed) == ("fake:sink", 7)
    assert world.plan(ZERO).position(ZERO) is None


def test_only_what_is_committed_is_planned() -> None:
    world = World([(0, 100), (0, 50)])
    world.brokers.stable = {ZERO: 60, ONE: 50}
    world.sink.stand("orders", 0, 40)
    world.sink.stand("orders", 1, 50)
    plan = world.plan(ZERO, ONE, read_committed=True)
    assert plan.backlogs({ZERO: 100, ONE: 50}) == [Backlog(ZERO, 40, 60), Backlog(ONE, 50, 50)]
    assert plan.lag == 20
    assert not plan.reached({ZERO: 60, ONE: 50}) and plan.reached({ZERO: 40, ONE: 50})


def test_a_table_past_an_open_transaction_waits() -> None:
    """It was loaded without read_committed before: the log is not shorter than the table."""
    world = World([(0, 100)])
    world.brokers.stable = {ZERO: 60}
    world.sink.stand("orders", 0, 80)
    plan = world.plan(ZERO, read_committed=True)
    assert not plan.refusals and plan.backlogs({ZERO: 60}) == [Backlog(ZERO, 80, 80)]
    assert plan.lag == 0 and plan.reached({ZERO: 60})


def test_latest_is_before_an_open_transaction() -> None:
    world = World([(0, 100)], starting="latest")
    world.brokers.stable = {ZERO: 60}
    assert world.plan(ZERO, read_committed=True).starts[ZERO].offset == 60
    assert world.plan(ZERO).starts[ZERO].offset == 100


class TestPattern:
    """All topics whose names match: they come and go while the load runs."""

    A, B = TopicPartition("shop-a", 0), TopicPartition("shop-b", 0)

    def planner(self, world: World) -> Planner:
        clock = Clock()
        topics = LoadedTopics(world.brokers, [], pattern="shop-.*", clock=clock, sleep=clock.sleep)
        return Planner(world.rules, topics, as_sink(world.sink))

    def test_nothing_of_a_new_topic_is_skipped_by_starting_at_the_latest(self) -> None:
        world = World([], starting="latest")
        world.brokers.topics = {"shop-a": (ID, [(0, 10)])}
        planner = self.planner(world)
        assert planner.plan([self.A]).starts[self.A].offset == 10
        world.brokers.topics = {**world.brokers.topics, "shop-b": (ID, [(0, 20)])}
        assert planner.plan([self.B]).starts[self.B].offset == 0, "it was created since the load began"
        world.sink.stand("shop-a", 0, 10)
        assert self.planner(world).plan([self.B]).starts[self.B].offset == 0, "and while no load ran"

    def test_two_drivers_begin_all_topics_at_the_same_moment(self) -> None:
        world = World([], starting="latest")
        world.brokers.topics = {"shop-a": (ID, [(0, 10)]), "shop-b": (ID, [(0, 20)])}
        assert set(self.planner(world).plan([self.A]).starts) == {self.A, self.B}
        world.sink.stand("shop-a", 0, 10)
        assert set(self.planner(world).plan([self.A]).starts) == {self.A}

    def test_no_topic_is_a_note(self) -> None:
        plan = self.planner(World([(0, 10)])).plan([])
        assert plan.notes == ("no topic matches the pattern 'shop-.*'",)
