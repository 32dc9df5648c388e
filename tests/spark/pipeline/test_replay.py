"""Rejected rows fed back: those that are good now move to the table, once, whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millstream.errors import MisuseError
from millstream.spark.load import replay as replaying
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.replay import ReplayReport, replay
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import Advance, Cycle, Standing
from millstream.spark.sinks.delta.sink import DeltaSink
from tests.spark.pipeline.conftest import Bench

VALUES: list[bytes | None] = [
    b'{"id":1,"price":1.5}',
    b'{"id":2,"price":"2.5"}',
    b'{"id":3,"price":-1}',
    b"nonsense",
    b'{"id":5,"price":5}',
]
BEFORE = Shaping(schema="id LONG, price DOUBLE", checks=["price > 0"])


class Table:
    """A Delta table into which the first load went."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self.bench = bench
        self.directory = directory
        self.sink = DeltaSink(str(directory))

    def load(self, shaping: Shaping, at: Callable[[str], None] = lambda _: None) -> None:
        pipeline = Pipeline(shaping)
        self.sink.prepare("group", pipeline.tables(self.bench.spark))
        ranges = [part for part in self.bench.ranges() if part.offsets]
        pieces = list(ranges)
        results = pipeline.run(
            self.bench.spark, self.bench.settings, pieces, self.sink.writer("cycle"), "tag"
        )
        advances = tuple(
            Advance(part.topic, part.partition, "00", part.start, part.end, Standing(None, None))
            for part in ranges
        )
        written = tuple(result.written for result in results)
        self.sink.commit(Cycle("group", "cycle", advances, written), at)

    def replay(self, shaping: Shaping, **options: Any) -> ReplayReport:
        pipeline = Pipeline(shaping)
        spark = self.bench.spark if pipeline.needs_spark_for_tables else None
        return replay(spark, DeltaSink(str(self.directory)), pipeline, group_id="group", **options)

    def rows(self) -> list[tuple[int, Any]]:
        files = [uri.removeprefix("file://") for uri in DeltaTable(str(self.directory)).file_uris()]
        found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        return sorted((row["_offset"], row.get("price")) for row in found)

    def rejected(self) -> list[tuple[int, str]]:
        found = self.sink.read_rejected().to_pylist()
        return sorted((row["offset"], row["reason"]) for row in found)


@pytest.fixture
def table(bench: Bench, tmp_path: Path) -> Table:
    bench.send(VALUES)
    made = Table(bench, tmp_path / "orders")
    made.load(BEFORE)
    assert made.rows() == [(0, 1.5), (4, 5.0)]
    assert [offset for offset, _ in made.rejected()] == [1, 2, 3]
    return made


@pytest.mark.parametrize("check", ["price > -10", "price + 0 > -10"], ids=["here", "by Spark"])
def test_what_is_good_now_moves(table: Table, check: str) -> None:
    stays = table.rejected()[::2]
    report = table.replay(Shaping(schema="id LONG, price DOUBLE", checks=[check]))
    assert (report.examined, report.readmitted, report.still_rejected) == (3, 1, 2)
    assert sorted(report.reasons) == [
        "not JSON: expecting value at position 0",
        'price: expected DOUBLE, got string "2.5"',
    ]
    assert table.rows() == [(0, 1.5), (2, -1.0), (4, 5.0)]
    assert table.rejected() == stays, "the others stay as they were"
    assert table.replay(Shaping(schema="id LONG, price DOUBLE", checks=[check])).readmitted == 0
    assert report.as_dict()["still_rejected"] == 2


def crash(_: str) -> None:
    raise KeyboardInterrupt


def test_a_crash_between_the_tables(table: Table) -> None:
    after = Shaping(schema="id LONG, price DOUBLE")
    with pytest.raises(KeyboardInterrupt):
        table.replay(after, at=crash)
    assert table.rows() == [(0, 1.5), (2, -1.0), (4, 5.0)], "it is in both tables for now"
    assert table.replay(after).readmitted == 1
    assert table.rows() == [(0, 1.5), (2, -1.0), (4, 5.0)]
    assert [offset for offset, _ in table.rejected()] == [1, 3]


def test_a_crash_between_two_steps(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step has moved stays moved; the rest is rejected still, and the next replay goes on."""
    monkeypatch.setattr(replaying, "_AT_A_TIME", 1)
    before = len(table.rejected())
    steps = 0

    def crash_second(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.replay(Shaping(schema="id LONG"), at=crash_second)
    assert [offset for offset, _ in table.rows()] == [0, 1, 2, 4], "the second is in both tables for now"
    assert len(table.rejected()) == before - 1
    assert table.replay(Shaping(schema="id LONG")).readmitted == 1
    assert [offset for offset, _ in table.rows()] == [0, 1, 2, 4]
    assert [offset for offset, _ in table.rejected()] == [3]


def test_no_step_holds_more_than_its_share(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    tried = Pipeline.again

    def watched(self: Pipeline, spark: Any, batch: Any) -> Any:
        held.append(batch.num_rows)
        return tried(self, spark, batch)

    monkeypatch.setattr(Pipeline, "again", watched)
    monkeypatch.setattr(DeltaSink, "read_rejected", None)  # which reads all of them
    monkeypatch.setattr(replaying, "_AT_A_TIME", 2)
    assert table.replay(Shaping(schema="id LONG")).examined == 3
    assert held == [2, 1]
    held.clear()
    monkeypatch.setattr(replaying, "_MOST_BYTES", 1)
    table.replay(Shaping(schema="id LONG"))
    assert held == [1], "a row is the least"


def test_reasons_are_told_apart_up_to_a_number(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "_MOST_REASONS", 1)
    report = table.replay(Shaping(schema="id LONG, price DOUBLE", checks=["id < 0"]))
    assert report.readmitted == 0 and len(report.reasons) == 2
    assert report.reasons["other reasons"] == 2


def test_what_the_rows_have_not_reached_is_left_to_the_load(bench: Bench, tmp_path: Path) -> None:
    """A load stopped between the tables: it will write the records when it goes on."""
    bench.send(VALUES)
    table = Table(bench, tmp_path / "orders")
    with pytest.raises(KeyboardInterrupt):
        table.load(BEFORE, at=crash)
    rejected = table.rejected()
    assert [offset for offset, _ in rejected] == [1, 2, 3]
    report = table.replay(Shaping(schema="id LONG, price DOUBLE"))
    assert (report.examined, report.readmitted, report.still_rejected) == (3, 0, 3)
    assert report.reasons == {"not loaded yet: run the load first": 3}
    assert table.rows() == [] and table.rejected() == rejected


def test_only_the_newest(table: Table) -> None:
    assert table.replay(Shaping(schema="id LONG"), limit=1).as_dict() == {
        "examined": 1,
        "readmitted": 0,
        "still_rejected": 1,
        "reasons": {"not JSON: expecting value at position 0": 1},
    }


def test_with_a_query(table: Table) -> None:
    sql = "SELECT id, price * 2 AS price, _topic, _partition, _offset, _timestamp FROM batch WHERE id < 10"
    report = table.replay(Shaping(schema="id LONG, price DOUBLE", checks=["price < 0"], sql=sql))
    assert report.readmitted == 1
    assert table.rows() == [(0, 1.5), (2, -2.0), (4, 5.0)]


def test_not_into_an_aggregate(table: Table) -> None:
    with pytest.raises(MisuseError, match="millstream group reset"):
        table.replay(Shaping(schema="id LONG", sql="SELECT count(*) AS n FROM batch"))
