"""Loads that meet no broker: at their start, and just when they join their group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import Admin, Consumer, OffsetAndMetadata
from millstream.embedded import EmbeddedBroker
from millstream.errors import LoadFailedError, MillstreamError, NoBrokersAvailableError
from millstream.spark import DeltaSink
from millstream.spark.load import Load
from millstream.spark.load.decisions.commit_metadata import CommitMetadata
from millstream.spark.load.engine import joining, topics
from millstream.spark.load.engine.members import LoadMember
from millstream.spark.load.status import status
from tests.spark.load.conftest import QUICK, Background, running, until_owned
from tests.spark.load.sqlite_sink import SqliteSink
from tests.waiting import until

FOR_EVER = {"default.api.timeout.ms": 3_600_000, "request.timeout.ms": 3_600_000}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One that can be stopped, with a topic."""
    with EmbeddedBroker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders")
        yield broker


def load_of(broker: EmbeddedBroker, directory: Path, **properties: Any) -> Load:
    """A load that never needs Spark: there are no records."""
    return Load(
        lambda: pytest.fail("there is nothing to load"),
        topics=["orders"],
        group_id="lake",
        bootstrap_servers=broker.bootstrap_servers,
        sink=SqliteSink(directory / "table"),
        properties={**QUICK, **properties},
    )


@pytest.fixture
def leaving(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker goes when the load is about to join, the first time."""
    start = LoadMember.start
    gone: list[LoadMember] = []

    def late(member: LoadMember) -> None:
        if not gone:
            broker.stop()
        gone.append(member)
        start(member)

    monkeypatch.setattr(LoadMember, "start", late)
    monkeypatch.setattr(joining, "_LOOK_SECONDS", 0.2)
    monkeypatch.setattr(topics, "_REACH_SECONDS", 0.5)


@pytest.mark.usefixtures("leaving")
def test_a_broker_that_goes_before_the_group_is_joined(broker: EmbeddedBroker, tmp_path: Path) -> None:
    address = broker.bootstrap_servers
    # Not less: with the broker there, everything has to be done within this time.
    load = load_of(broker, tmp_path, **{"default.api.timeout.ms": 5_000, "request.timeout.ms": 5_000})
    with pytest.raises(LoadFailedError) as raised:
        load.run_once()
    text = str(raised.value)
    assert "group lake could not be joined" in text and address in text and "(tried " in text
    assert "running it again is safe" in text
    broker.start()
    assert not load.run_once().stopped


@pytest.mark.usefixtures("leaving")
def test_a_continuous_load_waits_for_its_broker(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load = load_of(broker, tmp_path)
    with running(load):
        until(lambda: load.snapshot().state == "waiting for the brokers", lambda: str(load.snapshot()))
        until(lambda: "group lake cannot be joined yet" in caplog.text, "it says so")
        broker.start()
        until_owned(1, load)


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("once", [True, False])
def test_a_stop_is_heard_while_no_broker_answers(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    monkeypatch.setattr(topics, "_REACH_SECONDS", 3_600.0)
    load = load_of(broker, tmp_path, **FOR_EVER)
    background = Background(load.run_once if once else load.run)
    background.thread.start()
    until(lambda: load.snapshot().seconds > 0.5, "the question under way")
    load.stop()
    assert background.join().stopped


def test_a_stop_is_heard_before_anything_has_begun(broker: EmbeddedBroker, tmp_path: Path) -> None:
    load = load_of(broker, tmp_path, **FOR_EVER)
    broker.stop()
    background = Background(load.run_once)
    background.thread.start()
    load.stop()
    assert background.join().stopped


def test_no_broker_at_all(tmp_path: Path, broker: EmbeddedBroker) -> None:
    address = broker.bootstrap_servers
    load = load_of(broker, tmp_path, **{"default.api.timeout.ms": 1_000, "request.timeout.ms": 1_000})
    broker.stop()
    for run in (load.run_once, load.run):
        with pytest.raises(NoBrokersAvailableError, match=f"no broker answered at {address}"):
            run()


def delta_load(broker: EmbeddedBroker, path: Path | str, group: str = "first") -> Load:
    return Load(
        lambda: pytest.fail("there is nothing to load"),
        topics=["orders"],
        group_id=group,
        bootstrap_servers=broker.bootstrap_servers,
        sink=DeltaSink(path),
        properties=QUICK,
    )


def test_a_refused_load_leaves_no_group_behind(broker: EmbeddedBroker, tmp_path: Path) -> None:
    delta_load(broker, tmp_path / "table").run_once()
    with pytest.raises(MillstreamError, match="every record would be there twice"):
        delta_load(broker, tmp_path / "table", "second").run_once()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert [group.group_id for group in admin.list_groups()] == ["first"]
        assert admin.group_offsets("first")


def test_a_delta_table_is_known_by_its_place(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    delta_load(broker, "table").run_once()
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for spelling in ("table", "../here/table", tmp_path / "here" / "table", tmp_path / "link" / "table"):
            assert [
                one.note for one in status(admin, DeltaSink(spelling), "first", ["orders"]).partitions
            ] == [""]
        monkeypatch.chdir(tmp_path / "there")
        with pytest.raises(MillstreamError, match=f"loads orders into delta:{tmp_path}/here/table"):
            delta_load(broker, "table").run_once()

        # What an earlier version wrote, by the name that was typed.
        [(place, committed)] = admin.group_offsets("first").items()
        monkeypatch.chdir(tmp_path / "here")
        written = OffsetAndMetadata(committed.offset, str(CommitMetadata("0001-cycle", "delta:table")))
        settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.auto.commit": False}
        with Consumer({**settings, "group.id": "first"}) as consumer:
            consumer.assign([place])
            consumer.commit({place: written})
        assert [one.note for one in status(admin, DeltaSink("table"), "first", ["orders"]).partitions] == [""]
