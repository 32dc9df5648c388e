"""What goes wrong in a load over the real Spark and broker: said, tried again, and never half done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import ConfigError, LoadFailedError, UnknownTopicOrPartitionError
from millstream.spark.load import Detail, Load, Point
from millstream.spark.load.decisions.commit_metadata import CommitMetadata, read_commit_metadata
from millstream.spark.sinks.base import Cycle, ProgressConflictError, SinkError
from tests.conftest import NewTopic
from tests.spark.conftest import Fill
from tests.spark.load.conftest import NewLoad, offsets
from tests.spark.load.sqlite_sink import REJECTED, SqliteSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Failing(SqliteSink):
    """A sink whose next commits of rows fail."""

    failures: tuple[Exception, ...] = ()

    def commit(self, cycle: Cycle, at: Callable[[str], None]) -> None:
        if cycle.written and self.failures:
            error, *rest = self.failures
            self.failures = tuple(rest)
            raise error
        super().commit(cycle, at)


def test_a_failure_says_what_is_safe(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    failing = Failing(sink.directory)
    new_load(topic, sink=failing).run_once()
    fill(topic, 10, first=10)
    failing.failures = (SinkError("the disk is full"),) * 2
    with pytest.raises(LoadFailedError) as raised:
        new_load(topic, sink=failing).run_once()
    text = str(raised.value)
    assert f"{topic}-0 [10, 20)" in text and failing.name in text and "the disk is full" in text
    assert "0 rows" in text and "running it again is safe" in text
    assert raised.value.ranges == ((topic, 0, 10, 20),) and raised.value.sink == failing.name
    assert new_load(topic).run_once().loaded == 10


def test_other_checks_after_a_stop_between_the_tables(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 6)

    def cut(point: Point, detail: Detail) -> None:
        if point is Point.BETWEEN_TABLES and detail.ranges:
            raise SinkError("cut off")

    shape = {"value_format": "csv", "schema": "v STRING"}
    with pytest.raises(LoadFailedError, match="cut off"):
        new_load(topic, **shape, checks=["v != 'v1'", "v != 'v4'"], observer=cut).run_once()
    assert sink.positions(REJECTED) == offsets(topic, 0, 1, 2) + offsets(topic, 0, 4, 5)
    assert sink.positions() == []
    report = new_load(topic, **shape, checks=["v != 'v2'"], max_records=3).run_once()
    assert (report.loaded, report.rejected, report.cycles) == (5, 1, 2)
    assert sink.positions(REJECTED) == offsets(topic, 0, 2, 3)
    assert sink.positions() == offsets(topic, 0, 0, 2) + offsets(topic, 0, 3, 6)


def test_what_passes_is_tried_again(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    failing = Failing(sink.directory)
    failing.failures = (SinkError("busy"),)
    assert new_load(topic, sink=failing).run_once().loaded == 10


def test_conflicts_are_planned_anew_but_not_for_ever(
    new_load: NewLoad, new_topic: NewTopic, fill: Fill, sink: SqliteSink
) -> None:
    topic = new_topic()
    fill(topic, 10)
    failing = Failing(sink.directory)
    failing.failures = (ProgressConflictError("moved"),) * 3
    assert new_load(topic, sink=failing).run_once().loaded == 10
    fill(topic, 1, first=10)
    failing.failures = (ProgressConflictError("moved"),) * 10
    with pytest.raises(LoadFailedError, match="another load with this group"):
        new_load(topic, sink=failing).run_once()


def test_a_topic_that_is_not_there(new_load: NewLoad) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        new_load("no-such-topic").run_once()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"starting": "soon"}, "starting is 'soon'"),
        ({"on_recreated": "shrug"}, "on_recreated"),
        ({"max_records": 0}, "max_records"),
        ({"target_file_size": 1 << 20}, r"DeltaSink\(…, target_file_size=…\)"),
        ({"properties": {"group.id": "x"}}, "use group_id"),
        ({"properties": {"sesion.timeout.ms": 1}}, "session.timeout.ms"),
        ({"value_format": "xml"}, "xml"),
    ],
)
def test_settings_are_checked_at_once(new_load: NewLoad, settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        new_load("t", **settings)


def test_one_text_is_no_list_of_topics(spark: SparkSession, sink: SqliteSink) -> None:
    with pytest.raises(ConfigError, match="topics"):
        Load(spark, topics="orders", group_id="g", sink=sink)


def test_marks_name_their_sink() -> None:
    assert read_commit_metadata(str(CommitMetadata("c", "delta:x"))) == CommitMetadata("c", "delta:x")


class AppendOnly(SqliteSink):
    """A sink like a topic: what is written stays."""

    replaces = False


def test_sums_need_a_sink_that_can_replace(new_load: NewLoad, new_topic: NewTopic, tmp_path: Path) -> None:
    load = new_load(
        new_topic(),
        sink=AppendOnly(tmp_path / "log"),
        schema="country STRING",
        sql="SELECT country, count(*) AS customers FROM batch GROUP BY country",
    )
    with pytest.raises(ConfigError, match="cannot replace rows"):
        load.run_once()
