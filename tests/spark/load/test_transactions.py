"""Loads and the source beside transactions, on Apache Kafka: with read_committed a log ends, for the moment,
where its first open transaction begins.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer as TransactionalProducer

from millstream import Admin
from millstream.errors import MisuseError
from millstream.model import TopicPartition
from millstream.spark import register
from millstream.spark.load.status import status
from millstream.spark.planning.ranges import OffsetRange
from tests.conftest import NewTopic
from tests.kafka import brokers
from tests.spark.load.conftest import QUICK, NewLoad, offsets
from tests.spark.load.sqlite_sink import SqliteSink
from tests.waiting import SECONDS, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITTED = {"properties": {**QUICK, "isolation.level": "read_committed"}}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The embedded broker has no transactions."""
    if "bootstrap_servers" in metafunc.fixturenames and not brokers.given_servers():
        kafka = (brokers.APACHE_KAFKA, brokers.PLAINTEXT)
        metafunc.parametrize("bootstrap_servers", [kafka], indirect=True, scope="session", ids=["kafka"])


@dataclass
class Transactions:
    """Transactions of one producer into one partition; each starts with the first record that is sent."""

    producer: Any
    admin: Admin
    where: TopicPartition
    is_open: bool = False

    def send(self, *values: bytes) -> None:
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open = True
        for value in values:
            self.producer.produce(self.where.topic, value, partition=self.where.partition)
        assert self.producer.flush(SECONDS) == 0

    def commit(self) -> None:
        self.is_open = False
        self.producer.commit_transaction(SECONDS)
        self._until_settled()

    def abort(self) -> None:
        self.is_open = False
        self.producer.abort_transaction(SECONDS)
        self._until_settled()

    def _until_settled(self) -> None:
        """The marker is written a moment after the coordinator has answered."""
        until(lambda: self.end("read_committed") == self.end("read_uncommitted"), lambda: "no marker")

    def end(self, isolation_level: str) -> int:
        found = self.admin.list_offsets([self.where], isolation_level=isolation_level)[self.where]
        assert found is not None
        return found.offset


@pytest.fixture
def transactions(bootstrap_servers: str, admin: Admin, new_topic: NewTopic) -> Iterator[Transactions]:
    """Three records are committed at offsets 0 to 2, with a marker at 3; two more are open, at 4 and 5."""
    name = f"transactions-{uuid.uuid4().hex}"
    producer = TransactionalProducer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,  # the broker must not abort what waits for Spark to start
        }
    )
    producer.init_transactions(SECONDS)
    found = Transactions(producer, admin, TopicPartition(new_topic(), 0))
    found.send(b"v0", b"v1", b"v2")
    found.commit()
    found.send(b"open", b"open")
    yield found
    if found.is_open:
        found.abort()


def test_the_end_of_a_log_for_those_who_read_what_is_committed(transactions: Transactions) -> None:
    assert transactions.end("read_uncommitted") == 6
    assert transactions.end("read_committed") == 4
    with pytest.raises(MisuseError, match="isolation_level is 'committed'"):
        transactions.end("committed")


def test_a_load_goes_as_far_as_is_committed_and_on_when_more_is(
    transactions: Transactions, new_load: NewLoad, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = transactions.where.topic
    report = new_load(topic, **COMMITTED).run_once()
    assert (report.ranges, report.loaded) == ((OffsetRange(topic, 0, 0, 4),), 3)
    assert admin.group_offsets(group)[transactions.where].offset == 4
    assert new_load(topic, **COMMITTED).run_once().cycles == 0, "there is nothing to wait for"
    transactions.commit()
    report = new_load(topic, **COMMITTED).run_once()
    assert (report.ranges, report.loaded) == ((OffsetRange(topic, 0, 4, 7),), 2)
    assert sink.positions() == offsets(topic, 0, 0, 3) + offsets(topic, 0, 4, 6)


def test_the_lag_of_a_load_is_to_where_it_could_be(
    transactions: Transactions, new_load: NewLoad, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = transactions.where.topic
    new_load(topic, **COMMITTED).run_once()
    (found,) = status(admin, sink, group, [topic]).partitions
    assert (found.loaded, found.readable_end, found.log_end, found.lag) == (4, 4, 6, 0)
    assert "a transaction is open at 4" in found.note
    transactions.commit()
    (found,) = status(admin, sink, group, [topic]).partitions
    assert (found.loaded, found.readable_end, found.log_end, found.lag) == (4, 7, 7, 3)
    assert found.note == ""


def test_what_was_aborted_is_neither_loaded_nor_lost(
    transactions: Transactions, new_load: NewLoad, sink: SqliteSink, admin: Admin, group: str
) -> None:
    topic = transactions.where.topic
    transactions.abort()
    report = new_load(topic, **COMMITTED).run_once()
    assert (report.loaded, report.lost, report.notes) == (3, (), ())
    assert report.ranges == (OffsetRange(topic, 0, 0, 7),)
    transactions.send(b"aborted too")
    transactions.abort()
    report = new_load(topic, **COMMITTED).run_once()
    assert (report.ranges, report.loaded, report.lost) == ((OffsetRange(topic, 0, 7, 9),), 0, ())
    assert sink.positions() == offsets(topic, 0, 0, 3) and sink.lost(group) == []
    assert admin.group_offsets(group)[transactions.where].offset == 9


def test_a_table_that_is_past_an_open_transaction_waits_for_it(
    transactions: Transactions, new_load: NewLoad, sink: SqliteSink
) -> None:
    """It was loaded before without that setting: its log is not shorter than the table."""
    topic = transactions.where.topic
    assert new_load(topic).run_once().loaded == 5
    assert new_load(topic, **COMMITTED).run_once().cycles == 0
    transactions.send(b"one more")
    transactions.commit()
    assert new_load(topic, **COMMITTED).run_once().loaded == 1
    assert sink.positions() == offsets(topic, 0, 0, 3) + offsets(topic, 0, 4, 7)


def test_latest_is_where_the_open_transaction_begins(
    transactions: Transactions, new_load: NewLoad, sink: SqliteSink
) -> None:
    topic = transactions.where.topic
    assert new_load(topic, starting="latest", **COMMITTED).run_once().cycles == 0
    transactions.commit()
    new_load(topic, starting="latest", **COMMITTED).run_once()
    assert sink.positions() == offsets(topic, 0, 4, 6)


def test_the_source_reads_as_far_as_is_committed(
    spark: SparkSession, bootstrap_servers: str, transactions: Transactions, checkpoint: str, tmp_path: Path
) -> None:
    register(spark)
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": transactions.where.topic,
        "startingOffsets": "earliest",
    }

    def batch() -> list[bytes]:
        rows = spark.read.format("millstream").options(**options).load().orderBy("offset").collect()
        return [bytes(row.value) for row in rows]

    def stream() -> list[bytes]:
        frame = spark.readStream.format("millstream").options(**options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(str(tmp_path / "found"))
        try:
            assert query.awaitTermination(3 * int(SECONDS))
        finally:
            query.stop()
        rows = spark.read.parquet(str(tmp_path / "found")).orderBy("offset").collect()
        return [bytes(row.value) for row in rows]

    first = [b"v0", b"v1", b"v2"]
    assert batch() == first and stream() == first
    transactions.commit()
    assert stream() == [*first, b"open", b"open"]
