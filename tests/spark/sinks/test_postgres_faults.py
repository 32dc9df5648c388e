"""PostgreSQL under fire: connections cut at COMMIT, a crash of the server, drivers that meet in a row."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from millstream.spark.sinks.base import (
    Progress,
    ProgressConflictError,
    SinkError,
    SinkUnavailableError,
    Standing,
)
from millstream.spark.sinks.postgres import commit as postgres_commit
from millstream.spark.sinks.postgres import moving as postgres_moving
from millstream.spark.sinks.postgres.database import Connection, Database
from millstream.spark.sinks.postgres.sink import PostgresSink
from tests.spark.sinks.driving import TABLES, TOPIC_ID, Driver, nowhere, offsets, step
from tests.spark.sinks.postgres_relay import AtCommit, Relay
from tests.spark.sinks.postgres_site import PostgresSite
from tests.spark.sinks.site import another
from tests.waiting import SECONDS, until


@pytest.fixture
def site(postgres_url: str) -> Iterator[PostgresSite]:
    site = PostgresSite(postgres_url)
    yield site
    site.close()


@pytest.fixture
def relay(postgres_url: str) -> Iterator[Relay]:
    (socket_directory,) = parse_qs(urlsplit(postgres_url).query)["host"]
    with (
        tempfile.TemporaryDirectory(prefix="relay-") as directory,
        Relay(Path(directory), Path(socket_directory) / ".s.PGSQL.5432") as relay,
    ):
        yield relay


@pytest.fixture
def relayed(site: PostgresSite, relay: Relay) -> Driver:
    """A driver whose connections go through the relay."""
    url = f"postgresql://postgres@/postgres?host={relay.directory}"
    sink = PostgresSink(url, table=f"{site.schema}.{site.table}")
    site.sinks.append(sink)
    return Driver(sink, TABLES).prepared()


# -- connections that break


def test_the_reply_to_commit_is_lost(site: PostgresSite, relay: Relay, relayed: Driver) -> None:
    """8: the server did it, and the sink finds that out."""
    for start in (0, 10):
        cycle = relayed.plan(step(0, start, start + 10, bad={start}))
        relay.at_commit = AtCommit.LOSE_REPLY
        relayed.sink.commit(cycle, nowhere)
    assert offsets(site.rows()) == [o for o in range(20) if o % 10]
    assert offsets(site.rejected()) == [0, 10]


@pytest.mark.parametrize("what", [AtCommit.LOSE_REQUEST, AtCommit.HANG])
def test_the_request_to_commit_is_lost(
    site: PostgresSite, relay: Relay, relayed: Driver, what: AtCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8: the server did not do it. Where it still waits for the client, its transaction is ended first: what
    is said about it must stay true.
    """
    monkeypatch.setattr(postgres_commit, "_GRACE_MS", 100)
    relayed.load(step(0, 0, 10))
    cycle = relayed.plan(step(0, 10, 20), step(1, 0, 5))
    relay.at_commit = what
    with pytest.raises(SinkError, match="nothing was committed; rerunning is safe"):
        relayed.sink.commit(cycle, nowhere)
    assert relayed.standing(0).rows == Progress(10, 10, TOPIC_ID)
    relayed.load(step(0, 10, 20), step(1, 0, 5))
    assert offsets(site.rows(), 0) == list(range(20))
    assert offsets(site.rows(), 1) == list(range(5))


def test_somebody_goes_on_before_the_outcome_is_known(
    site: PostgresSite, relay: Relay, relayed: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle, other = relayed.plan(step(0, 0, 10)), another(site)
    found_out = postgres_commit.CycleCommit._find_out

    def late(self: postgres_commit.CycleCommit) -> None:
        until(lambda: other.next_offset() == 10, "the commit is there")
        other.load(step(0, 10, 15))
        found_out(self)

    monkeypatch.setattr(postgres_commit.CycleCommit, "_find_out", late)
    relay.at_commit = AtCommit.LOSE_REPLY
    with pytest.raises(ProgressConflictError, match=r"orders-0 was at nothing and is at 15 \(cycle "):
        relayed.sink.commit(cycle, nowhere)
    assert offsets(site.rows()) == list(range(15))


def test_a_connection_that_broke_while_idle_is_replaced(site: PostgresSite) -> None:
    driver = another(site)
    driver.load(step(0, 0, 5))
    theirs = "FROM pg_stat_activity WHERE application_name = 'millstream'"
    with psycopg.connect(site.url, autocommit=True) as connection:
        assert connection.execute(f"SELECT pg_terminate_backend(pid) {theirs}").fetchall()
        until(lambda: not connection.execute(f"SELECT {theirs}").fetchall(), "they have ended")
    driver.load(step(0, 5, 10))
    assert offsets(site.rows()) == list(range(10))


def test_no_server() -> None:
    sink = PostgresSink("postgresql://u:secret@127.0.0.1:1/db", table="orders")
    with pytest.raises(
        SinkError, match=r"postgresql://127.0.0.1:1/db\?table=orders: preparing .*refused"
    ) as info:
        sink.prepare("lake", TABLES)
    assert "secret" not in str(info.value)


# -- drivers that meet


@pytest.mark.parametrize("start", [0, 10])
def test_a_commit_waits_for_the_one_before_it_and_sees_what_it_did(
    site: PostgresSite, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3: also where there is no progress yet, and so no row that could be locked."""
    first, second = another(site), another(site)
    if start:
        first.load(step(0, 0, start))
    cycles = [driver.plan(step(0, start, start + 10)) for driver in (first, second)]
    inside, go_on = threading.Event(), threading.Event()
    drop_moved = postgres_moving.drop_moved

    def stop(connection: Connection, name: object, written: object) -> None:
        inside.set()
        assert go_on.wait(SECONDS)
        drop_moved(connection, name, written)  # type: ignore[arg-type]

    monkeypatch.setattr(postgres_commit, "drop_moved", stop)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.sink.commit, cycles[0], nowhere)
        assert inside.wait(SECONDS)
        other = pool.submit(second.sink.commit, cycles[1], nowhere)
        until(lambda: waits_for_a_lock(site), "the second waits")
        go_on.set()
        one.result(SECONDS)
        with pytest.raises(ProgressConflictError, match=f"{site.table}-0 .* is at {start + 10} "):
            other.result(SECONDS)
    assert offsets(site.rows()) == list(range(start + 10))


def waits_for_a_lock(site: PostgresSite) -> bool:
    with psycopg.connect(site.url, autocommit=True) as connection:
        statement = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return connection.execute(statement).fetchone() == (1,)


def test_many_drivers_prepare_at_once(site: PostgresSite) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: another(site), range(6)))


# -- staging


def test_a_crash_of_the_server_empties_what_was_staged(site: PostgresSite) -> None:
    """Unlogged tables do not survive one: a commit counts what it moves."""
    driver = another(site)
    cycle = driver.plan(step(0, 0, 10))
    (staged,) = site.staged()
    site.run(f'TRUNCATE {{}}."{staged}"', only_schema=True)
    with pytest.raises(SinkError, match="wrote 10 rows and 0 of them are there"):
        driver.sink.commit(cycle, nowhere)
    assert driver.standing() == Standing(None, None)
    assert site.rows() == []


def test_what_could_not_be_cleaned_up_goes_with_the_next_cycle(
    site: PostgresSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cycle fails because the database restarts: nothing can be dropped at that moment either."""
    driver = another(site)
    cycle = driver.plan(step(0, 0, 5, bad={1}))
    with monkeypatch.context() as away:
        away.setattr(Database, "session", _away)
        driver.sink.abandon(cycle.cycle_id, ())
    assert len(site.staged()) == 2
    driver.load(step(0, 0, 5))
    assert site.staged() == set()


def _away(database: Database, doing: str) -> NoReturn:
    raise SinkUnavailableError(f"{doing}: it restarts")


def test_a_commit_leaves_no_staging_tables(site: PostgresSite) -> None:
    driver = another(site)
    cycle = driver.plan(step(0, 0, 10, bad={1}), step(1, 0, 10))
    driver.write(cycle.cycle_id, step(0, 0, 10, bad={1}), "twin")
    assert len(site.staged()) == 5
    driver.sink.commit(cycle, nowhere)
    assert site.staged() == set()


def test_litter_goes_after_a_day(site: PostgresSite, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = another(site)
    driver.plan(step(0, 0, 10, bad={1}))
    another(site)
    assert len(site.staged()) == 2
    site.run("CREATE TABLE {}.millstream_staging_notes (theirs int)", only_schema=True)
    tomorrow = time.time() + 86_500
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    another(site)
    assert site.staged() == {"millstream_staging_notes"}


# -- tables


def test_a_table_that_was_dropped_is_loaded_from_the_beginning(site: PostgresSite) -> None:
    """9: its progress goes with it, for all groups."""
    driver = another(site)
    driver.load(step(0, 0, 10))
    another(site, group="other").load(step(0, 0, 10))
    site.run("DROP TABLE {}")
    assert driver.standing() == Standing(None, None)
    driver.prepared().load(step(0, 0, 3))
    assert offsets(site.rows()) == [0, 1, 2]
    assert another(site, group="other").standing() == Standing(None, None)


def test_names_of_any_characters(postgres_url: str) -> None:
    site = PostgresSite(postgres_url, table='100%s "odd".näme {} \\ \n')
    try:
        driver = another(site)
        driver.load(step(0, 0, 10, bad={1, 2}), run="first")
        driver.load(step(0, 0, 5, bad={2}), run="again")
        assert offsets(site.rows()) == [0, 1, *range(3, 10)]
        assert offsets(site.rejected()) == [2]
        assert driver.sink.read_rejected()["offset"].to_pylist() == [2]
        assert driver.sink.range_start("orders", 0, 2) == 1  # type: ignore[attr-defined]
    finally:
        site.close()


def test_status_of_a_table_that_is_not_there(site: PostgresSite) -> None:
    sink = site.sink()
    assert sink.lost("lake") == []
    assert sink.read_rejected().num_rows == 0
    assert Driver(sink).standing() == Standing(None, None)


def test_progress_of_an_earlier_version(site: PostgresSite) -> None:
    """It knew less of a partition, and had columns for that."""
    old = another(site)
    old.load(step(0, 0, 3))
    drop = (
        "ALTER TABLE {}.millstream_progress DROP COLUMN remade, DROP COLUMN low_offset, DROP COLUMN gap_end"
    )
    site.run(drop, only_schema=True)
    looking = Driver(site.sink())
    assert looking.standing().rows == Progress(3, 3, TOPIC_ID), "who only looks changes nothing"
    later = another(site)
    assert later.rows_progress() == Progress(3, 3, TOPIC_ID)
    later.load(step(0, 3, 5), step(1, 7, 9))
    assert later.rows_progress(0) == Progress(5, 5, TOPIC_ID)
    assert later.rows_progress(1) == Progress(9, 9, TOPIC_ID, low_offset=7)


def test_the_schema_of_the_search_path(site: PostgresSite) -> None:
    url = f"{site.url}&options=-csearch_path%3D{site.schema}"
    sink = PostgresSink(url, table="orders")
    site.sinks.append(sink)
    Driver(sink).prepared().load(step(0, 0, 3))
    assert offsets(site.rows()) == [0, 1, 2]
    missing = PostgresSink(site.url, table="nowhere.orders")
    site.sinks.append(missing)
    with pytest.raises(SinkError, match='schema "nowhere" does not exist'):
        missing.prepare("lake", TABLES)
