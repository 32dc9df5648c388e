"""What is answered about a snapshot: near misses, which records to read, paging, and loads."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from millstream.admin import PartitionLag
from millstream.console.cluster_snapshot import SampledPartition
from millstream.console.console import Console, ConsoleSettings
from millstream.console.errors import NotFoundError
from millstream.console.loads import TableStatus, load_rows, loads_in
from millstream.console.records import Range, from_offset, newest
from millstream.console.views.sampling import Rates
from millstream.console.web.endpoints import Endpoint, Page, Values
from millstream.console.web.pages import ENDPOINTS
from millstream.console.web.pages.topic import paging_of, topic_values
from millstream.console.web.responses import TEMPLATES, PageRenderer
from millstream.model import TopicPartition
from millstream.spark.load.decisions.commit_metadata import STARTING, CommitMetadata
from tests.unit.console.snapshots import group, snapshot, topic


def test_a_name_that_is_not_there_brings_those_that_are_near() -> None:
    known = snapshot(topic("orders", (0, 1)), topic("payments", (0, 1)), group("orders-lake"))
    with pytest.raises(NotFoundError) as topic_error:
        known.topic("ordres")
    assert topic_error.value.near == ["orders"]
    with pytest.raises(NotFoundError) as group_error:
        known.group("zzz")
    assert group_error.value.near == []


def test_sums_leave_out_what_nobody_knows() -> None:
    one = topic("t", (10, 30), (0, 5))
    half = SampledPartition(2, None, (1,), None, None, None)
    assert one.records == 25
    assert type(one)("t", "", False, 1, (*one.partitions, half)).records == 25
    assert type(one)("t", "", False, 1, (half,)).records is None
    assert group("g").lag is None
    lags = group("g", PartitionLag("t", 0, 5, 30, 25), PartitionLag("t", 1, None, 5, None))
    assert lags.lag == 25


def test_the_newest_may_lie_in_any_partition() -> None:
    found = newest(topic("t", (0, 100), (90, 95), (7, 7)), 20)
    assert found == {TopicPartition("t", 0): Range(80, 100), TopicPartition("t", 1): Range(90, 95)}
    assert newest(topic("t", (0, 100), (0, 100)), 20, partition=1) == {TopicPartition("t", 1): Range(80, 100)}


def test_many_partitions_are_read_less_from_each() -> None:
    found = newest(topic("t", *[(0, 1000)] * 500), 200)
    assert len(found) == 500
    assert {one.stop - one.start for one in found.values()} == {4}


def test_a_page_of_one_partition_stays_within_its_log() -> None:
    one = topic("t", (50, 100))
    place = TopicPartition("t", 0)
    assert from_offset(one, 0, 60, 20) == {place: Range(60, 80)}
    assert from_offset(one, 0, 0, 20) == {place: Range(50, 70)}
    assert from_offset(one, 0, 95, 20) == {place: Range(95, 100)}
    assert from_offset(one, 0, 100, 20) == {}


@pytest.mark.parametrize(
    ("offset", "older", "newer"),
    [(None, 60, None), (60, 50, 80), (50, None, 70), (80, 60, None), (200, 180, None)],
)
def test_older_and_newer(offset: int | None, older: int | None, newer: int | None) -> None:
    page = topic_values(topic("t", (50, 100)), snapshot(), Rates(), {})
    found = paging_of(page, {"partition": 0, "offset": offset, "count": 20})
    assert (found["older"], found["newer"]) == (older, newer)
    assert paging_of(page, {"partition": None, "offset": None, "count": 20})["older"] is None


def test_loads_are_known_by_what_they_commit() -> None:
    def lag(partition: int, metadata: str) -> PartitionLag:
        return PartitionLag("orders", partition, 10, 15, 5, metadata)

    marked = group(
        "lake",
        lag(0, str(CommitMetadata("0007-x", "delta:lake/orders"))),
        lag(1, str(CommitMetadata("0009-x", "delta:lake/orders"))),
        lag(2, str(CommitMetadata(STARTING, "topic:clean"))),
        lag(3, "somebody's own note"),
    )
    seen = snapshot(marked, group("plain", lag(0, "")))
    first, second = loads_in(seen)
    assert (first.group, first.table, first.lag, first.cycle) == ("lake", "delta:lake/orders", 10, "0009-x")
    assert first.topics == ["orders"]
    assert (second.table, second.cycle) == ("topic:clean", "")

    status = {"group": "lake", "sink": "delta:/data/lake/orders", "lag": 3, "partitions": [], "lost": []}
    tables = [
        TableStatus("delta:/data/lake/orders", (status,)),
        TableStatus("topic:clean", note="it is down"),
        TableStatus("delta:new", note="no group has loaded into this table yet"),
    ]
    rows = load_rows([first, second], tables, seen)
    assert [row["table"] for row in rows] == ["delta:lake/orders", "topic:clean", "delta:new"]
    assert rows[0]["status"] == status
    assert rows[1]["note"] == "it is down"
    assert rows[2]["group"] is None


def test_every_page_has_a_template_and_an_address_of_its_own() -> None:
    pages = [endpoint.page for endpoint in ENDPOINTS if endpoint.page is not None]
    assert [page.template for page in pages if not (TEMPLATES / page.template).is_file()] == []
    paths = [endpoint.path for endpoint in ENDPOINTS] + [page.path for page in pages]
    assert len(set(paths)) == len(paths)
    assert {"/", "/topics/{name}", "/groups/{name:path}"} <= {page.path for page in pages}


def test_a_page_links_to_its_own_json() -> None:
    async def answer(console: Console, request: Request) -> Values:
        return {}

    page = Page(path="/brokers", template="message.html", title="Brokers")
    endpoint = Endpoint("/api/brokers", answer, page)

    async def render() -> str:
        console = Console(ConsoleSettings("127.0.0.1:1"))
        try:
            shown = PageRenderer(console).page(endpoint, page, {}, {"sentence": "", "near": []}, "")
        finally:
            console.close()
        return bytes(shown.body).decode()

    assert 'href="/api/brokers"' in asyncio.run(render())
