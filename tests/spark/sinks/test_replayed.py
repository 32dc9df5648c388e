"""Rejected rows fed back into the stores themselves: a record that was rejected twice becomes one row, and a
step that fails leaves nothing behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.spark.load.pipeline import columns
from millstream.spark.load.pipeline.pipeline import Pipeline
from millstream.spark.load.replay import ReplayReport, replay
from millstream.spark.load.settings import Shaping
from millstream.spark.sinks.base import Advance, Cycle, SinkError, Tables
from tests.spark.sinks.driving import NOON, TOPIC, TOPIC_ID, Driver, nowhere, offsets
from tests.spark.sinks.postgres_site import PostgresSite
from tests.spark.sinks.site import Site, another
from tests.spark.sinks.test_delta import DeltaSite

STRICT, LENIENT = "id < 0", "id < 10"
VALUES = {1: b'{"id": 1}', 2: b'{"id": 2}', 3: b'{"id": 30}', 4: b"nonsense"}
"""By offset. With the lenient check only the last two are wrong."""


@pytest.fixture(params=["delta", "postgresql"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DeltaSite | PostgresSite]:
    if request.param == "delta":
        yield DeltaSite(str(tmp_path / "lake"), monkeypatch)
        return
    site = PostgresSite(request.getfixturevalue("postgres_url"))
    yield site
    site.close()


def pipeline(check: str) -> Pipeline:
    return Pipeline(Shaping(schema="id LONG", checks=[check]))


def reject(site: Site, group: str, *found: int) -> Driver:
    """A load that rejects the records at these offsets, and nothing else is in the topic."""
    tables: Tables = pipeline(STRICT).tables(None)
    driver = another(site, tables, group)
    cycle_id = uuid.uuid4().hex
    output = driver.sink.writer(cycle_id).open()
    output.write_rejected(
        pa.RecordBatch.from_pylist(
            [
                {"topic": TOPIC, "partition": 0, "offset": offset, "timestamp": NOON, "value": VALUES[offset]}
                | {"key": None, "headers": None, "reason": group, "rejected_at": NOON}
                for offset in found
            ],
            columns.rejected_schema(),
        )
    )
    step = Advance(TOPIC, 0, TOPIC_ID, 0, 10, driver.standing())
    driver.sink.commit(Cycle(group, cycle_id, (step,), (output.finish(),)), nowhere)
    return driver


def replayed(site: Site, check: str = LENIENT) -> ReplayReport:
    return replay(None, site.sink(), pipeline(check), group_id="lake")


def test_one_record_that_two_groups_rejected_becomes_one_row(site: Site) -> None:
    reject(site, "lake", 1, 2, 3, 4)
    reject(site, "pond", 1, 3)
    report = replayed(site)
    assert offsets(site.rows()) == [1, 2]
    assert offsets(site.rejected()) == [3, 3, 4]
    assert (report.examined, report.readmitted, report.still_rejected) == (6, 3, 3)
    assert sorted(report.reasons.values()) == [1, 2], "each of the rows that are left has a reason"


def test_a_rejection_that_is_recorded_twice_becomes_one_row(site: Site) -> None:
    reject(site, "lake", 1, 1, 1, 2)
    assert replayed(site).readmitted == 4
    assert offsets(site.rows()) == [1, 2] and site.rejected() == []


def files(site: Site) -> set[str]:
    """What the store holds, visible or not."""
    if isinstance(site, PostgresSite):
        return site.tables()
    assert isinstance(site, DeltaSite)
    return {path.name for path in Path(site.path).parent.rglob("*.parquet")}


def test_a_step_that_fails_leaves_nothing_behind(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = reject(site, "lake", 1, 2)
    before = files(site)

    def full(*_: object) -> None:
        raise SinkError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(driver.sink), "readmit", full)
        with pytest.raises(SinkError, match="the disk is full"):
            replayed(site)
    assert files(site) == before
    assert site.rows() == [] and offsets(site.rejected()) == [1, 2]
    assert replayed(site).readmitted == 2
    assert offsets(site.rows()) == [1, 2]


def test_a_step_that_was_made_keeps_its_rows_whatever_fails_then(site: Site) -> None:
    """Delta has a moment between its two tables, at which the rows are in both."""
    reject(site, "lake", 1, 2)

    def cut(_: str) -> None:
        raise SinkError("cut off")

    try:
        replay(None, site.sink(), pipeline(LENIENT), group_id="lake", at=cut)
    except SinkError:
        assert isinstance(site, DeltaSite)
    assert offsets(site.rows()) == [1, 2]
    replayed(site)
    assert offsets(site.rows()) == [1, 2] and site.rejected() == []
