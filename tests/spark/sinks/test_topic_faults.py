"""Loads into a topic under fire, on both brokers: drivers die at each write, and zombies wake up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from millstream import Admin, TopicPartition
from millstream.errors import ConfigError
from millstream.spark.sinks.base import (
    Progress,
    ProgressConflictError,
    SinkError,
    SinkRefusedError,
    Standing,
    Tables,
)
from millstream.spark.sinks.topic import commit as topic_commit
from millstream.spark.sinks.topic.journal import Entry, Journal, OutputPosition
from millstream.spark.sinks.topic.log import FENCED, OutputRecord, ProducerIdentity, TopicLog
from millstream.spark.sinks.topic.sink import TopicSink
from tests.kafka import brokers
from tests.spark.sinks.driving import (
    NOON,
    RAW_SCHEMA,
    RAW_TABLES,
    REMADE_ID,
    ROWS_SCHEMA,
    TABLES,
    TOPIC,
    TOPIC_ID,
    Driver,
    Stopped,
    nowhere,
    offsets,
    rows_batch,
    step,
)
from tests.spark.sinks.site import another
from tests.spark.sinks.topic_site import TopicSite
from tests.waiting import SECONDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bootstrap_servers" in metafunc.fixturenames:
        brokers.parametrize(metafunc)


@pytest.fixture
def site(bootstrap_servers: str) -> Iterator[TopicSite]:
    site = TopicSite(bootstrap_servers)
    yield site
    site.close()


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows in each."""
    monkeypatch.setattr(topic_commit, "_BATCH_BYTES", 450)


def written(site: TopicSite, partition: int = 0) -> list[int]:
    """The source's offsets in the order in which the output has them."""
    return [row["_offset"] for row in site.rows() if row["_partition"] == partition]


@contextmanager
def appending(instead: Callable[..., int]) -> Iterator[None]:
    """Call ``instead(number, do)`` for each append, numbered from 0."""
    original = TopicLog.append
    numbers = iter(range(1000))
    lock = threading.Lock()

    def append(self: TopicLog, *arguments: Any) -> int:
        with lock:
            number = next(numbers)
        return instead(number, lambda: original(self, *arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicLog, "append", append)
        yield


# -- death


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.usefixtures("small_batches")
def test_a_driver_dies_at_each_write(site: TopicSite, done: bool) -> None:
    """1, 8: whatever it had written, the next one writes the rest, and nothing twice, in order."""
    first = another(site)
    start, deaths = 0, 0
    for fatal in range(12):

        def dies(number: int, do: Callable[[], int], fatal: int = fatal) -> int:
            result = do() if number != fatal or done else 0
            if number == fatal:
                raise Stopped(str(number))
            return result

        cycle = first.plan(step(0, start, start + 10, bad={start + 1, start + 2}), step(1, start, start + 4))
        with appending(dies):
            try:
                first.sink.commit(cycle, nowhere)
            except Stopped:
                deaths += 1
        first = another(site)  # a new process: it remembers nothing
        for partition, end in ((0, start + 12), (1, start + 12)):
            at = first.next_offset(partition) or 0
            first.load(step(partition, at, end, bad={start + 1, start + 2} if partition == 0 else ()))
        start += 12
        bad = {base + each for base in range(0, start, 12) for each in (1, 2)}
        assert written(site, 0) == [o for o in range(start) if o not in bad]
        assert written(site, 1) == list(range(start))
        assert offsets(site.rejected()) == sorted(bad)
    assert deaths >= 8


@pytest.mark.parametrize("ends", [(10, 16), (5, 12, 20)], ids=["as it was", "in smaller steps"])
@pytest.mark.parametrize("cut", [3, 10], ids=["in part", "all of it"])
@pytest.mark.usefixtures("small_batches")
def test_what_a_dead_driver_wrote_is_cleaned_away_before_the_next_one_looks(
    site: TopicSite, cut: int, ends: tuple[int, ...]
) -> None:
    """What is left cannot be counted for the next numbers: a broker would take new records for old ones."""
    dead = another(site)
    dead.load(step(0, 0, 0))
    cycle = dead.plan(step(0, 0, 10))

    def dies(*arguments: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "write", dies)
        with pytest.raises(Stopped):
            dead.sink.commit(cycle, nowhere)
    assert written(site) == list(range(10))
    with Admin(bootstrap_servers=site.servers) as admin:
        admin.delete_records({TopicPartition(site.name, 0): cut})
    next_one = another(site)
    for end in ends:
        next_one.load(step(0, next_one.next_offset(0) or 0, end))
    kept = [offset for offset in written(site) if offset >= cut]
    assert kept == list(range(cut, ends[-1]))
    with pytest.raises(ProgressConflictError):
        dead.sink.commit(cycle, nowhere)
    assert [offset for offset in written(site) if offset >= cut] == kept


@pytest.mark.usefixtures("small_batches")
def test_a_record_that_makes_many_rows(site: TopicSite) -> None:
    """Rows of one position are told apart by their number."""

    def cycle_of(driver: Driver) -> Any:
        output = driver.sink.writer("c").open()
        output.write_rows(rows_batch(TOPIC, 0, [0] * 7 + [1] * 2, "r"))
        return replace(driver.plan(step(0, 0, 2, gaps=frozenset({0, 1}))), written=(output.finish(),))

    def dies(number: int, do: Callable[[], int]) -> int:
        if number == 3:
            raise Stopped
        return do()

    driver = another(site)
    with appending(dies), pytest.raises(Stopped):
        driver.sink.commit(cycle_of(driver), nowhere)
    assert len(written(site)) == 6
    later = another(site)
    later.sink.commit(cycle_of(later), nowhere)
    assert written(site) == [0] * 7 + [1] * 2


@pytest.mark.usefixtures("small_batches")
def test_a_broker_that_has_forgotten_the_producer(site: TopicSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a day it takes any number: then what is there already is known by its position alone."""
    original = TopicLog.append

    def uncounted(self: TopicLog, where: TopicPartition, records: list[OutputRecord], *_: Any) -> int:
        return original(self, where, records)

    monkeypatch.setattr(TopicLog, "append", uncounted)

    def dies(number: int, do: Callable[[], int]) -> int:
        if number == 3:
            raise Stopped
        return do()

    driver = another(site)
    with appending(dies), pytest.raises(Stopped):
        driver.sink.commit(driver.plan(step(0, 0, 10), run="r"), nowhere)
    assert written(site) == list(range(6))
    another(site).load(step(0, 0, 12))
    assert written(site) == list(range(12))


# -- zombies


@pytest.mark.parametrize("asleep_at", range(5))
@pytest.mark.parametrize("taken", [6, 15])
@pytest.mark.usefixtures("small_batches")
def test_a_zombie_wakes_up_between_writes(site: TopicSite, asleep_at: int, taken: int) -> None:
    """2, 3: it had compared, and perhaps written, when another took over; both mean the same records."""
    another(site).load(step(0, 0, 3))
    zombie, driver = another(site), another(site)
    cycle = zombie.plan(step(0, 3, 15), run="rows")
    asleep, wake = threading.Event(), threading.Event()
    me = threading.get_ident()

    def sleeps(number: int, do: Callable[[], int]) -> int:
        if threading.get_ident() != me and number == asleep_at:
            asleep.set()
            assert wake.wait(SECONDS)
        return do()

    with appending(sleeps), ThreadPoolExecutor(1) as pool:
        late = pool.submit(zombie.sink.commit, cycle, nowhere)
        assert asleep.wait(SECONDS)
        driver.load(step(0, 3, taken), run="rows")
        wake.set()
        with pytest.raises(ProgressConflictError, match=f"{TOPIC}-0 was at 3 and is at {taken}"):
            late.result(SECONDS)
    driver.load(step(0, taken, 20), run="rows")
    assert written(site) == list(range(20))
    assert driver.rows_progress() == Progress(20, 20, TOPIC_ID)


def test_two_drivers_begin_at_once(site: TopicSite) -> None:
    """3: both give the partition a producer id; the first one counts for both."""
    first, second = another(site), another(site)
    cycles = [driver.plan(step(0, 0, 10)) for driver in (first, second)]
    identify = second.sink._identify  # type: ignore[attr-defined]

    def late(*arguments: Any) -> Any:
        first.sink.commit(cycles[0], nowhere)
        return identify(*arguments)

    second.sink._identify = late  # type: ignore[attr-defined]
    with pytest.raises(ProgressConflictError):
        second.sink.commit(cycles[1], nowhere)
    assert written(site) == list(range(10))


def test_a_zombie_from_before_a_rewind_is_refused(site: TopicSite) -> None:
    driver = another(site)
    driver.load(step(0, 0, 10))
    zombie = another(site)
    cycle = zombie.plan(step(0, 10, 14))
    compare = zombie.sink._compare  # type: ignore[attr-defined]

    def slow(*arguments: Any) -> None:
        compare(*arguments)
        driver.load(step(0, 2, 5), run="again")

    zombie.sink._compare = slow  # type: ignore[attr-defined]
    with pytest.raises(ProgressConflictError):
        zombie.sink.commit(cycle, nowhere)
    assert written(site) == [*range(10), 2, 3, 4]
    assert driver.rows_progress() == Progress(5, 10, TOPIC_ID)
    driver.load(step(0, 5, 12))
    assert written(site) == [*range(10), *range(2, 12)]


def test_a_rewind_writes_again_behind(site: TopicSite) -> None:
    """A topic cannot replace: the newer of two records with one position counts."""
    driver = another(site)
    driver.load(step(0, 0, 6), run="first")
    driver.anchor(0, 2)
    driver.load(step(0, 2, 8, bad={3}), run="again")
    assert written(site) == [0, 1, 2, 3, 4, 5, 2, 4, 5, 6, 7]
    assert {row["_offset"]: row["run"] for row in site.rows()}[5] == "again"
    assert driver.rows_progress() == Progress(8, 8, TOPIC_ID)
    assert TopicSink.replaces is False
    driver.load(step(0, 0, 1, topic_id=REMADE_ID), run="remade")
    assert driver.rows_progress() == Progress(1, 1, REMADE_ID, 1)
    with pytest.raises(SinkError, match="cannot leave a topic"):
        driver.sink.readmit([], [], nowhere)


def test_brokers_count_as_the_sink_needs_them_to(site: TopicSite) -> None:
    """What the guarantee stands on: a number that was used is refused, or taken for a repetition."""
    site.sink().prepare("lake", TABLES)
    where = TopicPartition(site.name, 0)
    with TopicLog({"bootstrap.servers": site.servers}) as log:
        me = ProducerIdentity(log.new_producer_id(), 0)
        two = [OutputRecord(None, b"1"), OutputRecord(None, b"2")]
        assert log.append(where, two, me, 0) == 0
        assert log.append(where, two, me, 0) == 0
        for sequence in (1, 3):
            with pytest.raises(FENCED):
                log.append(where, two, me, sequence)
        assert log.append(where, two, ProducerIdentity(me.producer_id, 1), 0) == 2
        with pytest.raises(FENCED):
            log.append(where, two, me, 2)
        assert log.bound(where, "latest") == 4


# -- topics


def test_an_entry_of_an_earlier_version() -> None:
    """It knew less of a partition."""
    progress = {"next_offset": 3, "high_offset": 5, "topic_id": TOPIC_ID}
    entry = Entry(1, 0, 0, 0, OutputPosition(0, 0), OutputPosition(0, 0), Progress(3, 5, TOPIC_ID))
    assert Entry.from_json(entry.to_json() | {"progress": progress}) == entry
    late = replace(entry, progress=Progress(3, 5, TOPIC_ID, 0, 1, 4))
    assert Entry.from_json(json.loads(json.dumps(late.to_json()))) == late


def test_records_stay_in_their_partition(site: TopicSite) -> None:
    driver = another(site)
    driver.load(*(step(partition, 0, 3) for partition in range(4)))
    with Admin(bootstrap_servers=site.servers) as admin:
        admin.add_partitions(site.name, 5)
    another(site).load(*(step(partition, 3, 6) for partition in range(4)))
    places = {(row["_partition"], record["partition"]) for row, record in both(site)}
    assert places == {(0, 0), (1, 1), (2, 0), (3, 1)}
    for partition in range(4):
        assert written(site, partition) == list(range(6))


def both(site: TopicSite) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return zip(site.rows(), site.records(site.name), strict=True)


def test_an_output_that_was_deleted_is_loaded_from_the_beginning(site: TopicSite) -> None:
    """9: its progress is that of another topic."""
    driver = another(site)
    driver.load(step(0, 0, 10))
    with Admin(bootstrap_servers=site.servers) as admin:
        admin.delete_topics([site.name])
    assert driver.standing() == Standing(None, None)
    driver.prepared().load(step(0, 0, 3))
    assert written(site) == [0, 1, 2]


def test_a_raw_record_stays_what_it_was(site: TopicSite) -> None:
    """Also where it comes from a topic that a load has written: of its headers the last count."""
    own = [{"key": "millstream.source", "value": b"x/0/1"}, {"key": "millstream.load", "value": b"0:other"}]
    row = {"topic": TOPIC, "partition": 0, "offset": 7, "timestamp": NOON, "key": b"k", "value": None}
    driver = another(site, RAW_TABLES)
    output = driver.sink.writer("c").open()
    output.write_rows(pa.RecordBatch.from_pylist([row | {"value": b"v", "headers": own}], RAW_SCHEMA))
    driver.sink.commit(replace(driver.plan(step(0, 8, 8)), written=(output.finish(),)), nowhere)
    (record,) = site.records(site.name)
    assert (record["key"], record["value"], record["timestamp"]) == (b"k", b"v", NOON)
    added = [
        {"key": "millstream.source", "value": f"{TOPIC}/0/7".encode()},
        {"key": "millstream.load", "value": b"0:lake"},
    ]
    assert record["headers"] == own + added


def test_a_column_becomes_the_key(site: TopicSite) -> None:
    driver = Driver(site.sink(key="id"), TABLES).prepared()
    driver.load(step(0, 0, 2), run="r")
    records = site.records(site.name)
    assert [record["key"] for record in records] == [b"0", b"1"]
    assert [json.loads(record["value"]) for record in records] == [
        {"id": 0, "price": 0.0, "run": "r"},
        {"id": 1, "price": 0.5, "run": "r"},
    ]
    with pytest.raises(ConfigError, match="no column nothing for the key"):
        site.sink(key="nothing").prepare("lake", TABLES)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_progress_topic_that_brokers_would_empty_is_refused(site: TopicSite, policy: str) -> None:
    name = f"{site.name}_progress"
    with Admin(bootstrap_servers=site.servers) as admin:
        admin.create_topic(name, partitions=1, configs={"cleanup.policy": policy})
        with pytest.raises(SinkRefusedError) as refused:
            site.sink().prepare("g", TABLES)
        assert f"{name} has cleanup.policy={policy}" in str(refused.value)
        remedy = f"millstream topic config {name} --set cleanup.policy=compact"
        assert remedy in str(refused.value)
        admin.alter_configs(name, {"cleanup.policy": "compact"})
    loaded = another(site)
    loaded.load(step(0, 0, 3))
    assert written(site) == [0, 1, 2]


def test_what_a_topic_cannot_be(site: TopicSite) -> None:
    with pytest.raises(ConfigError, match="name of a topic"):
        TopicSink("", bootstrap_servers=site.servers)
    with pytest.raises(ConfigError, match="no partition columns"):
        site.sink().prepare("lake", Tables(ROWS_SCHEMA, None, partition_by=("id",)))
